//! One client's stream of frames: taken in as they come, answered as they are decided.
//!
//! A stream in, a stream out, and no task of its own: whoever polls the answers drives it. Knows nothing of tonic.
//!
//! Invariants: every frame is answered, whole or by places; at most [`caps::FRAMES_IN_FLIGHT`] frames are unanswered at once:
//! beyond that no more are read, so that a client that does not read its answers stops itself.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use quorate_proto::convert::pack_answers;
use quorate_proto::v1;
use tokio::sync::mpsc;

use super::ingress::Ingress;
use crate::caps;
use crate::sequencer::Reply;

/// The answers to a stream of frames.
#[derive(Debug)]
pub struct Frames<S> {
    ingress: Arc<Ingress>,
    input: Option<S>,
    to: mpsc::UnboundedSender<Reply>,
    replies: mpsc::UnboundedReceiver<Reply>,
    in_flight: usize,
    answers: VecDeque<v1::FrameAnswer>,
}

impl<S: Stream<Item = v1::Frame> + Unpin> Frames<S> {
    /// The answers to what comes in at `input`. Ends when that has ended and all is answered.
    pub fn new(ingress: Arc<Ingress>, input: S) -> Frames<S> {
        let (to, replies) = mpsc::unbounded_channel();
        Frames { ingress, input: Some(input), to, replies, in_flight: 0, answers: VecDeque::new() }
    }

    fn answer(&mut self, reply: Reply) {
        self.in_flight -= 1;
        match reply.outcome {
            Ok(answers) => self.answers.extend(pack_answers(reply.tag, reply.shard, &answers)),
            Err(failure) => {
                let error = Some(self.ingress.failure_to_wire(reply.shard, failure));
                let (tag, shard) = (reply.tag, reply.shard.0);
                self.answers.push_back(v1::FrameAnswer { tag, shard, error, ..v1::FrameAnswer::default() });
            }
        }
    }

    fn take_in(&mut self, frame: &v1::Frame) {
        match self.ingress.take_in(frame, &self.to) {
            Ok(()) => self.in_flight += 1,
            Err(answer) => self.answers.push_back(*answer),
        }
    }
}

impl<S: Stream<Item = v1::Frame> + Unpin> Stream for Frames<S> {
    type Item = v1::FrameAnswer;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<v1::FrameAnswer>> {
        let this = &mut *self;
        loop {
            if let Some(answer) = this.answers.pop_front() {
                return Poll::Ready(Some(answer));
            }
            if this.in_flight > 0
                && let Poll::Ready(Some(reply)) = this.replies.poll_recv(context)
            {
                this.answer(reply);
                continue;
            }
            let Some(input) = &mut this.input else {
                return if this.in_flight == 0 { Poll::Ready(None) } else { Poll::Pending };
            };
            if this.in_flight >= caps::FRAMES_IN_FLIGHT {
                return Poll::Pending;
            }
            match Pin::new(input).poll_next(context) {
                Poll::Ready(Some(frame)) => this.take_in(&frame),
                Poll::Ready(None) => this.input = None,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
