//! Denials that need no log: which checks are worth a look, and what becomes of their frames.
//!
//! Only what was never sent before is looked at. Such a denial is in no session's memory; were another copy of its frame on its way,
//! that could be granted and charged after its caller was told of the denial.
//!
//! A check is looked at only if one of its keys was denied of late: so a check that is going to be granted costs nothing here.

use quorate_core::{Answer, Check, Command, Fingerprint, FrameId, Group, PlaceAnswer};

use super::queue::Submission;

/// How many keys are remembered; a power of two.
const REMEMBERED: usize = 1 << 10;

/// Keys that were denied of late: some of them, and now and then one that was not.
#[derive(Debug)]
pub(super) struct DeniedKeys(Box<[u64; REMEMBERED]>);

impl Default for DeniedKeys {
    fn default() -> Self {
        DeniedKeys(Box::new([0; REMEMBERED]))
    }
}

impl DeniedKeys {
    fn place(key: Fingerprint) -> usize {
        key.table as usize % REMEMBERED
    }

    /// Remembers the keys of what was denied, in a frame as it was logged and answered.
    pub(super) fn learn(&mut self, group: &Group, answers: &[PlaceAnswer]) {
        for ((_, command), answer) in group.commands.iter().zip(answers) {
            if let (Command::Check(check), Answer::Decision(decision)) = (command, &answer.answer)
                && !decision.allowed
            {
                check.limits.iter().for_each(|limit| self.0[Self::place(limit.key)] = limit.key.table);
            }
        }
    }

    fn has(&self, check: &Check) -> bool {
        check.limits.iter().any(|limit| self.0[Self::place(limit.key)] == limit.key.table)
    }

    /// The checks of a batch that are worth a look.
    pub(super) fn suspects<'b>(&self, batch: &'b [Submission]) -> Vec<Suspect<'b>> {
        let mut suspects = Vec::new();
        #[cfg(feature = "planted")]
        let all = quorate_core::planted::is(quorate_core::planted::Planted::DeniesWhatMayHaveRun);
        #[cfg(not(feature = "planted"))]
        let all = false;
        for (at, submission) in batch.iter().enumerate().filter(|(_, submission)| submission.first || all) {
            for (nth, (place, command)) in submission.group.commands.iter().enumerate() {
                if let Command::Check(check) = command
                    && self.has(check)
                {
                    suspects.push(Suspect { at: (at, nth), frame: submission.group.frame, place: *place, check });
                }
            }
        }
        suspects
    }
}

/// A check that may be denied by the state alone.
#[derive(Clone, Copy, Debug)]
pub struct Suspect<'b> {
    /// Which submission of the batch, and which command of it.
    pub(super) at: (usize, usize),
    /// The frame that it is part of.
    pub frame: Option<FrameId>,
    /// Its place there.
    pub place: u32,
    /// What it asks.
    pub check: &'b Check,
}

/// Takes what was denied out of a batch, and gives its answers to the submissions that it came from. Those of which nothing is
/// left are answered.
pub(super) fn take_out(batch: Vec<Submission>, denied: Vec<((usize, usize), PlaceAnswer)>) -> Vec<Submission> {
    let mut left = Vec::with_capacity(batch.len());
    let mut denied = denied.into_iter().peekable();
    for (at, mut submission) in batch.into_iter().enumerate() {
        let mut nth = 0;
        submission.group.commands.retain(|_| {
            let answer = denied.next_if(|(place, _)| *place == (at, nth));
            nth += 1;
            match answer {
                Some((_, answer)) => {
                    submission.reply.know(answer);
                    false
                }
                None => true,
            }
        });
        if submission.group.commands.is_empty() && nth > 0 {
            submission.reply.reply(Ok(Vec::new()));
        } else {
            left.push(submission);
        }
    }
    left
}
