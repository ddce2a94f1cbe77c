//! Which batch may begin, and from which weights: the staleness bound as a state machine that knows no threads and no clocks.
//!
//! Step k trains weights of version k−1. A batch for it whose oldest token is of version v is then k−1−v versions old, so it may
//! begin once the engine holds v ≥ k−1−bound; a swap under way only makes later tokens newer. As v never exceeds the steps
//! trained, at most `bound` + 1 batches are begun and not trained: the bound of staleness is the bound of the queue.
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
        /// Weights are taken in whenever they come, not only when they are needed.
        takes_newest: bool,
        /// Also while a batch is generated.
        partial: bool,
        highest_bound: u64,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    struct Drawn {
        ticket: Ticket,
        oldest: u64,
    }

    /// Sampler, queue, learner and the one spare buffer, between two of their steps.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct World {
        admission: Admission,
        held: Held,
        generating: Option<Drawn>,
        /// Generated, not yet in the queue.
        done: Option<Drawn>,
        queue: Vec<Drawn>,
        /// The delivery that fills the spare buffer.
        delivery: Option<Held>,
        trained: u64,
        /// Has to publish before it does anything else.
        publishes: bool,
        changes_left: u8,
        rewinds_left: u8,
    }

    impl World {
        fn new(bound: u64, trained: u64) -> Self {
            Self {
                admission: Admission::new(bound, trained, TOTAL),
                held: Held {
                    version: trained,
                    rewinds: 0,
                },
                generating: None,
                done: None,
                queue: Vec::new(),
                delivery: None,
                trained,
                publishes: false,
                changes_left: 2,
                rewinds_left: 2,
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
            let rewinds = self.admission.rewinds();
            // The sampler abandons what is void.
            let is_void = |drawn: &Drawn| drawn.ticket.rewinds != rewinds;
            if self.generating.as_ref().is_some_and(is_void) {
                step(&|world| world.generating = None);
            } else if self.generating.is_some() {
                step(&|world| world.done = world.generating.take());
            }
            if self.done.as_ref().is_some_and(is_void) {
                step(&|world| world.done = None);
            } else if self.done.is_some() && self.queue.len() as u64 <= MAX_STALENESS {
                step(&|world| world.queue.extend(world.done.take()));
            }
            let idle = self.generating.is_none() && self.done.is_none();
            if idle && self.admission.next().is_some() && self.admission.is_held(self.held) {
                step(&|world| {
                    let held = world.held;
                    world.generating = world.admission.begin(held).map(|ticket| Drawn {
                        ticket,
                        oldest: held.version,
                    });
                });
            }
            let needs = idle && !self.admission.is_held(self.held);
            let may = (idle && rules.takes_newest) || (self.generating.is_some() && rules.partial);
            if self.delivery.is_some() && (needs || may) {
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
                    let drawn = world.queue.remove(0);
                    if !world.admission.is_valid(drawn.ticket.rewinds) {
                        return;
                    }
                    assert_eq!(drawn.ticket.batch, world.trained + 1, "in order, once each");
                    let age = world.trained - drawn.oldest;
                    assert!(age <= drawn.ticket.bound, "{age} versions old: {world:?}");
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
                for bound in 0..=rules.highest_bound {
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
                world.publishes = true;
                next.push(world);
            }
            next
        }
    }

    /// Walks every interleaving from `start`; gives the number of states.
    fn walk(start: World, rules: Rules) -> usize {
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(world) = open.pop() {
            let own = world.own_moves(rules);
            let is_over = world.trained == TOTAL
                && !world.publishes
                && world.held.version == TOTAL
                && world.admission.next().is_none();
            assert!(is_over || !own.is_empty(), "stuck: {rules:?} {world:?}");
            let in_flight = world
                .queue
                .iter()
                .chain(&world.done)
                .chain(&world.generating);
            let valid = in_flight.filter(|drawn| world.admission.is_valid(drawn.ticket.rewinds));
            assert!(valid.count() as u64 <= rules.highest_bound + 1, "{world:?}");
            for next in own.into_iter().chain(world.commands(rules)) {
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen.len()
    }

    #[test]
    fn no_interleaving_of_any_small_configuration_is_stuck_or_trains_beyond_its_bound() {
        let mut states = 0;
        for highest_bound in 0..=3 {
            for bound in 0..=highest_bound {
                for (takes_newest, partial) in [(false, false), (true, false), (true, true)] {
                    for trained in [0, 2] {
                        let rules = Rules {
                            takes_newest,
                            partial,
                            highest_bound,
                        };
                        states += walk(World::new(bound, trained), rules);
                    }
                }
            }
        }
        assert!(states > 10_000, "{states} states are no walk");
    }

    #[test]
    fn a_bound_lets_that_many_batches_and_one_more_begin_from_the_same_weights() {
        let mut world = World::new(0, 0);
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
