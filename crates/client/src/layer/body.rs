//! The body of a response: the service's, or that of a refusal.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response that passed a [`RateLimit`](super::RateLimit): the service's own, or a short text of the layer.
    ///
    /// ```
    /// use http_body::Body;
    /// use quorate_client::layer::ResponseBody;
    /// # fn is_body<B: Body<Data = bytes::Bytes>>() where ResponseBody<B>: Body<Data = bytes::Bytes, Error = B::Error> {}
    /// ```
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum Inner<B> {
        Passed { #[pin] body: B },
        Refused { text: Bytes },
    }
}

impl<B> ResponseBody<B> {
    pub(super) fn passed(body: B) -> Self {
        ResponseBody { inner: Inner::Passed { body } }
    }

    pub(super) fn refused(text: Bytes) -> Self {
        ResponseBody { inner: Inner::Refused { text } }
    }
}

/// An empty one.
impl<B> Default for ResponseBody<B> {
    fn default() -> Self {
        ResponseBody::refused(Bytes::new())
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.project().inner.project() {
            Projected::Passed { body } => body.poll_frame(cx),
            Projected::Refused { text } if text.is_empty() => Poll::Ready(None),
            Projected::Refused { text } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Passed { body } => body.is_end_stream(),
            Inner::Refused { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Passed { body } => body.size_hint(),
            Inner::Refused { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
