//! Which batch may begin, and from which weights: the staleness bound as a state machine that knows no threads and no clocks.
//!
//! Step k trains weights of version k−1. A batch for it whose oldest token is of version v is then k−1−v versions old, so it may
//! begin once the engine holds v ≥ k−1−bound; a swap under way only makes later tokens newer. As v never exceeds the steps
//! trained, at most `bound` + 1 batches are begun and not trained: the bound of staleness is the bound of the queue.
//!
//! In mode `async` several batches are drawn at once; each has its own ticket, and the bound holds for every one of them, since
//! nothing of the above asks whether the batch before is over. They are handed over in order.
//!
//! A rewind (the learner went back to a checkpoint) makes everything begun before it void: such batches are dropped wherever
//! they are, and none begins until weights published after the rewind have arrived.

/// Most that a bound may be; the queue of batches has one place more, so it is never full.
pub const MAX_STALENESS: u64 = 8;

/// What the engine generates from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    pub version: u64,
    /// Rewinds before these weights were published.
    pub rewinds: u64,
}

/// A batch that was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The step that trains on it.
    pub batch: u64,
    /// Rewinds before it was begun; void when there was another one since.
    pub rewinds: u64,
    /// The bound that it was let in under, which holds for it to the end.
    pub bound: u64,
}

/// When weights are swapped in, and whether batches are drawn side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intake {
    /// Weights are taken in as they come, not only when a batch needs them: mode `async`.
    pub takes_newest: bool,
    /// Also under batches that are being drawn.
    pub partial: bool,
}

impl Intake {
    /// Whether a batch may begin beside `drawing` others. Where sessions keep their weights to the end, what `waits` to be
    /// swapped in goes first, or there would always be one batch that keeps it waiting.
    pub fn may_begin(self, drawing: usize, waits: bool) -> bool {
        if self.takes_newest {
            self.partial || !waits
        } else {
            drawing == 0
        }
    }

    /// Whether weights that have arrived may be swapped in under `drawing` batches. `is_needed`: the next batch cannot begin
    /// without. Elsewhere than in mode `async` only then, so that a run repeats itself.
    pub fn may_swap(self, drawing: usize, is_needed: bool) -> bool {
        match (self.takes_newest, self.partial) {
            (true, true) => true,
            (true, false) => drawing == 0,
            (false, _) => drawing == 0 && is_needed,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Admission {
    bound: u64,
    /// The last batch that was begun.
    begun: u64,
    total: u64,
    rewinds: u64,
}

impl Admission {
    /// For steps `trained` + 1 to `total`.
    pub fn new(bound: u64, trained: u64, total: u64) -> Self {
        Self {
            bound,
            begun: trained,
            total,
            rewinds: 0,
        }
    }

    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The bound from the next batch on.
    pub fn set_bound(&mut self, bound: u64) {
        self.bound = bound;
    }

    /// The batch to begin next; None: all are begun.
    pub fn next(&self) -> Option<u64> {
        (self.begun < self.total).then_some(self.begun + 1)
    }

    /// Rewinds so far.
    pub fn rewinds(&self) -> u64 {
        self.rewinds
    }

    /// The oldest weights that the next batch may begin from, or that the run waits for at its end.
    pub fn wanted(&self) -> Held {
        Held {
            version: match self.next() {
                Some(batch) => (batch - 1).saturating_sub(self.bound),
                None => self.total,
            },
            rewinds: self.rewinds,
        }
    }

    pub fn is_held(&self, held: Held) -> bool {
        let wanted = self.wanted();
        held.rewinds >= wanted.rewinds && held.version >= wanted.version
    }

    /// Begins the next batch from `held`. None: newer weights are needed, or all batches are begun.
    pub fn begin(&mut self, held: Held) -> Option<Ticket> {
        let batch = self.next().filter(|_| self.is_held(held))?;
        self.begun = batch;
        Some(Ticket {
            batch,
            rewinds: self.rewinds,
            bound: self.bound,
        })
    }

    /// Whether a batch of so many rewinds still counts.
    pub fn is_valid(&self, rewinds: u64) -> bool {
        rewinds == self.rewinds
    }

    /// The learner went back to older weights after `trained` steps: whatever is begun for later ones is void.
    pub fn rewind(&mut self, trained: u64) {
        self.rewinds += 1;
        self.begun = trained;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const TOTAL: u64 = 4;

    #[derive(Debug, Clone, Copy)]
    struct Rules {
        intake: Intake,
        highest_bound: u64,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct Batch {
        /// What of it anybody still asks for; None: void, and void it stays.
        counts: Option<Counts>,
        /// Still to come: its last token.
        is_drawing: bool,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct Counts {
        batch: u8,
        /// The bound that it was let in under, less the versions that its oldest token will lag when it is trained. Worlds that
        /// differ in the two but not in this go on alike, so they are one.
        spare: i8,
    }

    impl Batch {
        fn begun(ticket: Ticket, oldest: u64) -> Self {
            let lag = ticket.batch as i8 - 1 - oldest as i8;
            Self {
                counts: Some(Counts {
                    batch: ticket.batch as u8,
                    spare: ticket.bound as i8 - lag,
                }),
                is_drawing: true,
            }
        }
    }

    /// Sampler, queue, learner and the one spare buffer, between two of their steps.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct World {
        admission: Admission,
        held: Held,
        /// Begun and not handed over, the next step's first.
        in_flight: Vec<Batch>,
        queue: Vec<Batch>,
        /// The delivery that fills the spare buffer.
        delivery: Option<Held>,
        trained: u64,
        /// Has to publish before it does anything else.
        publishes: bool,
        changes_left: u8,
        rewinds_left: u8,
    }

    impl World {
        /// How often the bound may be changed, and how often the learner may go back.
        fn new(bound: u64, trained: u64, changes: u8, rewinds: u8) -> Self {
            Self {
                admission: Admission::new(bound, trained, TOTAL),
                held: Held {
                    version: trained,
                    rewinds: 0,
                },
                in_flight: Vec::new(),
                queue: Vec::new(),
                delivery: None,
                trained,
                publishes: false,
                changes_left: changes,
                rewinds_left: rewinds,
            }
        }

        /// Everything that can happen next without anybody's help.
        fn own_moves(&self, rules: Rules) -> Vec<Self> {
            let mut next = Vec::new();
            let mut step = |change: &dyn Fn(&mut Self)| {
                let mut world = self.clone();
                change(&mut world);
                next.push(world);
            };
            let drawing = self.in_flight.iter().filter(|batch| batch.is_drawing);
            let drawing = drawing.count();
            // The sampler abandons what is void, ends what it draws in any order, and hands over in the one order.
            let is_void = |batch: &Batch| batch.counts.is_none();
            if self.in_flight.iter().any(is_void) {
                step(&|world| world.in_flight.retain(|batch| !is_void(batch)));
            }
            for (at, batch) in self.in_flight.iter().enumerate() {
                if batch.is_drawing && !is_void(batch) {
                    step(&|world| world.in_flight[at].is_drawing = false);
                }
            }
            let is_next = |batch: &Batch| !is_void(batch) && !batch.is_drawing;
            if self.in_flight.first().is_some_and(is_next)
                && self.queue.len() as u64 <= MAX_STALENESS
            {
                step(&|world| {
                    let batch = world.in_flight.remove(0);
                    world.queue.push(batch);
                });
            }
            let is_held = self.admission.is_held(self.held);
            if rules.intake.may_begin(drawing, self.delivery.is_some())
                && self.admission.next().is_some()
                && is_held
            {
                step(&|world| {
                    let held = world.held;
                    let ticket = world.admission.begin(held).expect("checked");
                    assert_eq!(held.rewinds, ticket.rewinds, "from weights left behind");
                    world.in_flight.push(Batch::begun(ticket, held.version));
                });
            }
            if self.delivery.is_some() && rules.intake.may_swap(drawing, !is_held) {
                step(&|world| world.held = world.delivery.take().expect("checked"));
            }
            // The learner.
            if self.publishes {
                if self.delivery.is_none() {
                    step(&|world| {
                        world.publishes = false;
                        world.delivery = Some(Held {
                            version: world.trained,
                            rewinds: world.admission.rewinds(),
                        });
                    });
                }
            } else if self.trained < TOTAL && !self.queue.is_empty() {
                step(&|world| {
                    let Some(Counts { batch, spare }) = world.queue.remove(0).counts else {
                        return;
                    };
                    assert_eq!(u64::from(batch), world.trained + 1, "in order, once each");
                    assert!(spare >= 0, "{} versions too old: {world:?}", -spare);
                    world.trained += 1;
                    world.publishes = true;
                });
            }
            next
        }

        /// What people and guards do, at a boundary.
        fn commands(&self, rules: Rules) -> Vec<Self> {
            let mut next = Vec::new();
            if self.changes_left > 0 {
                let others =
                    (0..=rules.highest_bound).filter(|bound| *bound != self.admission.bound());
                for bound in others {
                    let mut world = self.clone();
                    world.changes_left -= 1;
                    world.admission.set_bound(bound);
                    next.push(world);
                }
            }
            // After a step (not published yet) and while it waits.
            if self.rewinds_left > 0 && self.trained < TOTAL {
                let mut world = self.clone();
                world.rewinds_left -= 1;
                world.admission.rewind(self.trained);
                for batch in world.queue.iter_mut().chain(&mut world.in_flight) {
                    batch.counts = None;
                }
                world.publishes = true;
                next.push(world);
            }
            next
        }
    }

    /// Walks every interleaving from `starts`; gives the number of states, and the most batches that were drawn side by side.
    fn walk(starts: impl IntoIterator<Item = World>, rules: Rules) -> (usize, usize) {
        let mut open: Vec<World> = starts.into_iter().collect();
        let mut seen: HashSet<World> = open.iter().cloned().collect();
        let mut at_once = 0;
        while let Some(world) = open.pop() {
            let own = world.own_moves(rules);
            let is_over = world.trained == TOTAL
                && !world.publishes
                && world.held.version == TOTAL
                && world.admission.next().is_none();
            assert!(is_over || !own.is_empty(), "stuck: {rules:?} {world:?}");
            let begun = world.queue.iter().chain(&world.in_flight);
            let is_valid = |batch: &&Batch| batch.counts.is_some();
            let valid = begun.filter(is_valid).count() as u64;
            assert!(valid <= rules.highest_bound + 1, "{world:?}");
            let drawing = world.in_flight.iter().filter(|batch| batch.is_drawing);
            at_once = at_once.max(drawing.filter(is_valid).count());
            for next in own.into_iter().chain(world.commands(rules)) {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        (seen.len(), at_once)
    }

    /// Synchronous and one step off, async, async with partial rollouts.
    const INTAKES: [Intake; 3] = {
        let plain = Intake {
            takes_newest: false,
            partial: false,
        };
        let newest = Intake {
            takes_newest: true,
            ..plain
        };
        let partial = Intake {
            partial: true,
            ..newest
        };
        [plain, newest, partial]
    };

    #[test]
    fn no_interleaving_of_any_small_configuration_is_stuck_or_trains_beyond_its_bound() {
        let mut states = 0;
        for highest_bound in 0..=3 {
            for intake in INTAKES {
                let rules = Rules {
                    intake,
                    highest_bound,
                };
                // Two rewinds and two changes of the bound, wherever they come; with the most batches side by side one change,
                // as two are a million states.
                let changes = if highest_bound < 3 { 2 } else { 1 };
                let starts = (0..=highest_bound)
                    .flat_map(|bound| [0, 2].map(|trained| World::new(bound, trained, changes, 2)));
                states += walk(starts, rules).0;
            }
        }
        assert!(states > 100_000, "{states} states are no walk");
    }

    #[test]
    fn as_many_batches_are_drawn_side_by_side_as_the_bound_allows() {
        for (highest_bound, trained) in [0, 1, 2, 3]
            .into_iter()
            .flat_map(|bound| [(bound, 0), (bound, 2)])
        {
            for intake in INTAKES {
                let rules = Rules {
                    intake,
                    highest_bound,
                };
                let (_, at_once) = walk([World::new(highest_bound, trained, 0, 0)], rules);
                let all = (highest_bound + 1).min(TOTAL - trained) as usize;
                let expected = if intake.takes_newest { all } else { 1 };
                assert_eq!(at_once, expected, "{rules:?}");
            }
        }
    }

    #[test]
    fn a_bound_lets_that_many_batches_and_one_more_begin_from_the_same_weights() {
        let mut world = World::new(0, 0, 0, 0);
        world.admission.set_bound(1);
        let ticket = world.admission.begin(world.held);
        assert_eq!(
            ticket.map(|ticket| (ticket.batch, ticket.bound)),
            Some((1, 1))
        );
        assert!(
            world.admission.begin(world.held).is_some(),
            "batch 2 lags by one"
        );
        assert!(
            world.admission.begin(world.held).is_none(),
            "batch 3 would by two"
        );
    }

    #[test]
    fn after_a_rewind_nothing_begins_before_the_restored_weights_are_there() {
        let mut admission = Admission::new(2, 0, 9);
        let mut held = Held {
            version: 0,
            rewinds: 0,
        };
        assert!(admission.begin(held).is_some() && admission.begin(held).is_some());
        admission.rewind(1);
        assert!(!admission.is_valid(0));
        held.version = 1;
        assert_eq!(admission.begin(held), None, "published before the rewind");
        held.rewinds = 1;
        let ticket = admission.begin(held);
        assert_eq!(
            ticket.map(|ticket| (ticket.batch, ticket.rewinds)),
            Some((2, 1))
        );
    }
}
