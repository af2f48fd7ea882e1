//! Ranks as threads of one process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Hub, Progress, RankLost, hung};

type Parts = Vec<Vec<u8>>;

struct State {
    /// What each rank has given in the current round.
    posts: Vec<Option<Parts>>,
    /// What each rank has yet to fetch of the last complete round.
    inboxes: Vec<Option<Parts>>,
    progress: Vec<Progress>,
    left: Vec<bool>,
    lost: Option<RankLost>,
}

struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
    timeout: Duration,
}

/// One rank's end of an in-process hub.
pub struct LocalHub {
    meeting: Arc<Meeting>,
    rank: usize,
    ranks: usize,
}

impl LocalHub {
    /// The ends of a hub for `ranks` threads.
    pub fn all(ranks: usize, timeout: Duration) -> Vec<LocalHub> {
        let meeting = Arc::new(Meeting {
            state: Mutex::new(State {
                posts: vec![None; ranks],
                inboxes: vec![None; ranks],
                progress: vec![Progress::new(); ranks],
                left: vec![false; ranks],
                lost: None,
            }),
            changed: Condvar::new(),
            timeout,
        });
        (0..ranks)
            .map(|rank| LocalHub {
                meeting: Arc::clone(&meeting),
                rank,
                ranks,
            })
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A rank that panicked is reported by its `Drop`, not by poison.
        self.meeting
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the job for everybody.
    pub fn fail(&self, why: &str) {
        let mut state = self.state();
        state.lost.get_or_insert_with(|| RankLost {
            ranks: vec![self.rank],
            why: why.to_owned(),
        });
        self.meeting.changed.notify_all();
    }
}

impl Drop for LocalHub {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail("its thread panicked");
        }
        self.state().left[self.rank] = true;
        self.meeting.changed.notify_all();
    }
}

impl Hub for LocalHub {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn exchange(&self, parts: Parts) -> Result<Parts, RankLost> {
        assert_eq!(parts.len(), self.ranks, "one part for each rank");
        let mut state = self.state();
        state.posts[self.rank] = Some(parts);
        state.progress[self.rank].alive();
        if state.posts.iter().all(Option::is_some) {
            let mut posts: Vec<Parts> = state.posts.iter_mut().filter_map(Option::take).collect();
            for rank in 0..self.ranks {
                let inbox = posts
                    .iter_mut()
                    .map(|parts| std::mem::take(&mut parts[rank]));
                state.inboxes[rank] = Some(inbox.collect());
            }
            self.meeting.changed.notify_all();
        }
        loop {
            if let Some(inbox) = state.inboxes[self.rank].take() {
                state.progress[self.rank].alive();
                return Ok(inbox);
            }
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            let gone = |rank: &usize| state.left[*rank] && state.posts[*rank].is_none();
            if let Some(rank) = (0..self.ranks).find(gone) {
                let lost = RankLost {
                    ranks: vec![rank],
                    why: "it left while others wait for it".to_owned(),
                };
                state.lost = Some(lost.clone());
                self.meeting.changed.notify_all();
                return Err(lost);
            }
            let busy: Vec<Option<&Progress>> = (0..self.ranks)
                .map(|rank| state.posts[rank].is_none().then_some(&state.progress[rank]))
                .collect();
            if let Some(lost) = hung(&busy, self.meeting.timeout) {
                state.lost = Some(lost.clone());
                self.meeting.changed.notify_all();
                return Err(lost);
            }
            let tick = (self.meeting.timeout / 8).min(Duration::from_millis(250));
            state = match self.meeting.changed.wait_timeout(state, tick) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    fn step(&self, label: &str) {
        self.state().progress[self.rank].step(label);
    }

    fn alive(&self) {
        self.state().progress[self.rank].alive();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::hub::gather;

    #[test]
    fn every_rank_gets_its_part_of_every_rank_in_every_round() {
        let ranks = 5;
        std::thread::scope(|scope| {
            for hub in LocalHub::all(ranks, Duration::from_secs(20)) {
                scope.spawn(move || {
                    for round in 0..200u8 {
                        let me = hub.rank() as u8;
                        let parts = (0..ranks as u8).map(|to| vec![me, to, round]).collect();
                        let inbox = hub.exchange(parts).unwrap();
                        let want: Parts = (0..ranks as u8).map(|r| vec![r, me, round]).collect();
                        assert_eq!(inbox, want);
                    }
                });
            }
        });
    }

    #[test]
    fn a_rank_that_never_comes_is_named_with_its_step() {
        let mut hubs = LocalHub::all(3, Duration::from_millis(200));
        let silent = hubs.remove(1);
        silent.step("dispatch");
        std::thread::scope(|scope| {
            for hub in hubs {
                scope.spawn(move || {
                    hub.step("dispatch");
                    let lost = gather(&hub, b"x").unwrap_err();
                    assert_eq!(lost.ranks, [1], "{lost}");
                    assert!(lost.why.contains("`dispatch`"), "{lost}");
                });
            }
        });
    }

    #[test]
    fn a_rank_that_panics_is_named_at_once() {
        let mut hubs = LocalHub::all(2, Duration::from_secs(30));
        let dying = hubs.remove(1);
        let started = std::time::Instant::now();
        let thread = std::thread::spawn(move || {
            let _held = dying;
            panic!("planted");
        });
        let lost = gather(&hubs[0], b"").unwrap_err();
        assert_eq!((lost.ranks, started.elapsed().as_secs()), (vec![1], 0));
        assert!(thread.join().is_err());
    }
}
