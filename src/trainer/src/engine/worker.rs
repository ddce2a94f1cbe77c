//! The engine's thread: takes commands, lets sessions join, decodes one token for each, lets them leave.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use dialogue::generate::{GenerateError, SessionId, TurnFinish};
use tch::{Kind, Tensor};

use super::cache::KvCache;
use super::forward::{Span, decode, logits, prefill};
use super::handle::{Command, EngineOptions, Shared, SwapRequest, Swapped};
use super::prefix::{PrefixIndex, common_prefix};
use super::sampling;
use super::turn::ActiveTurn;
use super::weights::WeightBuffer;
use crate::torch_ext::InferenceMode;

/// Keys and values of a session between two turns.
struct Parked {
    ids: Vec<u32>,
    /// \[layers, 2, kv heads, ids, D\]
    kept: Tensor,
    oldest_version: u64,
}

#[derive(Default)]
struct Session {
    /// A turn of it is active or waiting.
    generating: bool,
    parked: Option<Parked>,
}

/// Where the keys and values of a context's beginning come from.
enum Source {
    Nothing,
    /// The session's own, set aside after its last turn.
    Own(usize),
    Parked(SessionId, usize),
    Row(usize, usize),
    /// The very same context joins in this round, at this place.
    Twin(usize),
    /// A context that joins in this round shares a long beginning: wait for the next round.
    Later,
}

/// A turn about to become active.
struct Join {
    turn: ActiveTurn,
    /// Index into the round's joins of who computes this context.
    twin_of: Option<usize>,
}

pub(super) struct Worker {
    weights: WeightBuffer,
    version: u64,
    options: EngineOptions,
    inbox: Receiver<Command>,
    shared: Arc<Shared>,
    cache: KvCache,
    /// Turn r decodes in cache row r.
    active: Vec<ActiveTurn>,
    waiting: VecDeque<ActiveTurn>,
    sessions: HashMap<SessionId, Session>,
    prefixes: PrefixIndex,
    pending_swaps: VecDeque<SwapRequest>,
    /// Probabilities of one step, kept to save the allocation.
    probabilities: Vec<f32>,
}

impl Worker {
    pub fn new(
        weights: WeightBuffer,
        version: u64,
        options: EngineOptions,
        inbox: Receiver<Command>,
        shared: Arc<Shared>,
    ) -> Self {
        shared.update(|stats| stats.policy_version = version);
        let cache = KvCache::new(weights.config(), weights.kind(), weights.device());
        Self {
            weights,
            version,
            options,
            inbox,
            shared,
            cache,
            active: Vec::new(),
            waiting: VecDeque::new(),
            sessions: HashMap::new(),
            prefixes: PrefixIndex::default(),
            pending_swaps: VecDeque::new(),
            probabilities: Vec::new(),
        }
    }

    /// Returns when told to shut down, or when nobody can send commands any more.
    pub fn run(&mut self) {
        let _inference = InferenceMode::enter();
        loop {
            if !self.can_step() {
                match self.inbox.recv() {
                    Ok(Command::Shutdown) | Err(_) => return,
                    Ok(command) => self.obey(command),
                }
            }
            while let Ok(command) = self.inbox.try_recv() {
                if matches!(command, Command::Shutdown) {
                    return;
                }
                self.obey(command);
            }
            self.swap_if_due();
            if self.can_step() {
                let started = Instant::now();
                self.drop_abandoned();
                self.admit();
                self.step();
                self.report(started);
            }
        }
    }

    /// In lockstep: every open session generates. Else: any does.
    fn can_step(&self) -> bool {
        let generating = self.active.len() + self.waiting.len();
        generating > 0 && (!self.options.lockstep || generating == self.sessions.len())
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Open(session) => {
                self.sessions.entry(session).or_default();
            }
            Command::Generate(request, reply) => {
                let session = self.sessions.entry(request.session).or_default();
                let turn = ActiveTurn::new(request, self.options.max_length_tokens, reply);
                if session.generating {
                    let reason = format!("session {} has a turn under way already", turn.session.0);
                    turn.fail(GenerateError::Refused { reason });
                } else if turn.is_full() {
                    turn.finish(TurnFinish::Length);
                } else {
                    session.generating = true;
                    self.waiting.push_back(turn);
                }
            }
            Command::Release(session) => self.release(session),
            Command::Swap(request) => self.pending_swaps.push_back(request),
            Command::Shutdown => {}
        }
    }

    fn release(&mut self, session: SessionId) {
        if let Some(at) = self.waiting.iter().position(|turn| turn.session == session) {
            let turn = self.waiting.remove(at).expect("found at this place");
            turn.finish(TurnFinish::Aborted);
        }
        if let Some(row) = self.active.iter().position(|turn| turn.session == session) {
            let turn = self.remove_row(row);
            turn.finish(TurnFinish::Aborted);
        }
        self.prefixes.forget(session);
        self.sessions.remove(&session);
    }

    fn swap_if_due(&mut self) {
        // In lockstep the moment of a swap must not depend on timing either.
        if self.options.lockstep && !self.sessions.is_empty() {
            return;
        }
        while let Some(request) = self.pending_swaps.pop_front() {
            self.swap(request);
        }
    }

    fn swap(&mut self, request: SwapRequest) {
        let started = Instant::now();
        let previous = std::mem::replace(&mut self.weights, request.buffer);
        self.version = request.version;
        // Nobody may start from what older weights computed.
        self.prefixes.clear();
        if !self.options.keep_kv_on_swap {
            self.forget_cached();
        }
        let blocked = started.elapsed();
        self.shared.update(|stats| {
            stats.swaps += 1;
            stats.swap_blocked += blocked;
            stats.policy_version = request.version;
        });
        // The asker may be gone; then the buffer is nobody's.
        drop(request.reply.send(Swapped { blocked, previous }));
    }

    /// Every turn under way joins again from its first token; what was set aside is dropped.
    fn forget_cached(&mut self) {
        for mut turn in self.active.drain(..).rev() {
            turn.cached = 0;
            self.waiting.push_front(turn);
        }
        for session in self.sessions.values_mut() {
            session.parked = None;
        }
    }

    fn drop_abandoned(&mut self) {
        for row in (0..self.active.len()).rev() {
            if self.active[row].is_abandoned() {
                let turn = self.remove_row(row);
                self.end(turn, TurnFinish::Aborted);
            }
        }
        let (gone, waiting): (VecDeque<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(ActiveTurn::is_abandoned);
        self.waiting = waiting;
        for turn in gone {
            self.end(turn, TurnFinish::Aborted);
        }
    }

    /// The session is idle until its next turn.
    fn end(&mut self, turn: ActiveTurn, finish: TurnFinish) {
        if let Some(session) = self.sessions.get_mut(&turn.session) {
            session.generating = false;
        }
        self.shared.update(|stats| stats.turns += 1);
        turn.finish(finish);
    }

    /// Lets waiting turns join while there are rows. Contexts that begin alike are computed once, in as many rounds as that takes.
    fn admit(&mut self) {
        if self.options.lockstep || self.active.len() + self.waiting.len() > self.options.max_rows {
            // Where not all find a row, the sessions opened first go first: their batch is wanted next.
            self.waiting
                .make_contiguous()
                .sort_by_key(|turn| turn.session);
        }
        while !self.waiting.is_empty() && self.active.len() < self.options.max_rows {
            let started = Instant::now();
            self.admit_round();
            self.shared
                .update(|stats| stats.prefill += started.elapsed());
        }
    }

    fn admit_round(&mut self) {
        let mut joins: Vec<Join> = Vec::new();
        // Who joins in this round, with the place of whoever computes the context.
        let mut joining: HashMap<SessionId, usize> = HashMap::new();
        let mut later = VecDeque::new();
        let mut spans = Vec::new();
        let mut ids = Vec::new();
        let mut reused = 0;
        while self.active.len() + joins.len() < self.options.max_rows
            && (ids.is_empty() || ids.len() < self.options.max_prefill_tokens)
        {
            let Some(mut turn) = self.waiting.pop_front() else {
                break;
            };
            let row = self.active.len() + joins.len();
            let length = turn.ids.len();
            let source = self.source(&turn, &joins, &joining);
            self.cache.ensure(row as i64 + 1, length as i64 + 1);
            let mut twin_of = None;
            let mut past = 0;
            turn.oldest_version = self.version;
            match source {
                Source::Later => {
                    later.push_back(turn);
                    continue;
                }
                Source::Nothing => {}
                Source::Own(count) => {
                    let parked = self.sessions[&turn.session]
                        .parked
                        .as_ref()
                        .expect("the source was found there");
                    turn.oldest_version = parked.oldest_version;
                    self.cache.put_back(row, &parked.kept, count);
                    past = count;
                }
                Source::Parked(other, count) => {
                    let parked = self.sessions[&other]
                        .parked
                        .as_ref()
                        .expect("the source was found there");
                    self.cache.put_back(row, &parked.kept, count);
                    past = count;
                }
                Source::Row(other, count) => {
                    self.cache.copy_row(other, row, count);
                    past = count;
                }
                Source::Twin(twin) => {
                    twin_of = Some(twin);
                    past = length;
                }
            }
            reused += past;
            if let Some(session) = self.sessions.get_mut(&turn.session) {
                session.parked = None;
            }
            if twin_of.is_none() {
                spans.push(Span {
                    row,
                    past,
                    count: length - past,
                });
                ids.extend(turn.ids[past..].iter().map(|id| i64::from(*id)));
            }
            joining.insert(turn.session, twin_of.unwrap_or(joins.len()));
            if turn.oldest_version == self.version {
                self.prefixes.register(turn.session, &turn.ids);
            }
            turn.cached = length;
            joins.push(Join { turn, twin_of });
        }
        for turn in later.into_iter().rev() {
            self.waiting.push_front(turn);
        }
        self.shared.update(|stats| {
            stats.prefill_tokens += ids.len() as u64;
            stats.reused_tokens += reused as u64;
        });

        let hidden = prefill(&self.weights, &mut self.cache, &spans, &ids);
        let mut end = 0;
        let lasts: Vec<i64> = spans
            .iter()
            .map(|span| {
                end += span.count as i64;
                end - 1
            })
            .collect();
        let last = Tensor::from_slice(&lasts).to_device(self.weights.device());
        let scores = logits(&self.weights, &hidden.index_select(0, &last));
        // Row of `scores` for each join: its own span's, or its twin's.
        let mut own_span = 0;
        let mut span_of: Vec<i64> = Vec::with_capacity(joins.len());
        let first = self.active.len();
        for (at, join) in joins.iter().enumerate() {
            if let Some(twin) = join.twin_of {
                self.cache
                    .copy_row(first + twin, first + at, join.turn.cached);
                span_of.push(span_of[twin]);
            } else {
                span_of.push(own_span);
                own_span += 1;
            }
        }
        let spread = Tensor::from_slice(&span_of).to_device(self.weights.device());
        let scores = scores.index_select(0, &spread);
        self.active.extend(joins.into_iter().map(|join| join.turn));
        self.advance(first, &scores);
    }

    fn source(
        &self,
        turn: &ActiveTurn,
        joins: &[Join],
        joining: &HashMap<SessionId, usize>,
    ) -> Source {
        // At least the last token is computed: its logits are needed.
        let most = turn.ids.len() - 1;
        let shared = |ids: &[u32]| common_prefix(ids, &turn.ids).min(most);
        let own = self
            .sessions
            .get(&turn.session)
            .and_then(|session| session.parked.as_ref())
            .map_or(0, |parked| shared(&parked.ids));
        let mut best = (
            if own > 0 {
                Source::Own(own)
            } else {
                Source::Nothing
            },
            own,
        );
        for other in self.prefixes.candidates(&turn.ids) {
            if other == turn.session {
                continue;
            }
            let found = if let Some(at) = joining.get(&other) {
                if joins[*at].turn.ids == turn.ids {
                    return Source::Twin(*at);
                }
                (Source::Later, shared(&joins[*at].turn.ids))
            } else if let Some(row) = self.active.iter().position(|turn| turn.session == other) {
                let holder = &self.active[row];
                let count = shared(&holder.ids[..holder.cached]);
                (Source::Row(row, count), count)
            } else if let Some(parked) = self
                .sessions
                .get(&other)
                .and_then(|session| session.parked.as_ref())
            {
                let count = shared(&parked.ids);
                (Source::Parked(other, count), count)
            } else {
                continue;
            };
            if found.1 > best.1 {
                best = found;
            }
            // Shorter prefixes cannot do better.
            break;
        }
        best.0
    }

    /// Decodes one token for every active row.
    fn step(&mut self) {
        if self.active.is_empty() {
            return;
        }
        let mut ids = Vec::with_capacity(self.active.len());
        let mut positions = Vec::with_capacity(self.active.len());
        let mut longest = 0;
        for turn in &mut self.active {
            ids.push(i64::from(turn.ids[turn.cached]));
            positions.push(turn.cached as i64);
            turn.cached += 1;
            longest = longest.max(turn.cached);
        }
        self.cache.ensure(ids.len() as i64, longest as i64);
        let hidden = decode(&self.weights, &mut self.cache, &ids, &positions);
        let scores = logits(&self.weights, &hidden);
        self.shared.update(|stats| stats.decode_steps += 1);
        self.advance(0, &scores);
    }

    /// Draws one token for each of the rows `first..`, from its row of `scores`, and lets those leave whose turn ends.
    fn advance(&mut self, first: usize, scores: &Tensor) {
        let (rows, vocabulary) = scores.size2().expect("scores are [rows, V]");
        let vocabulary = vocabulary as usize;
        self.softmax(first, scores, rows as usize * vocabulary);
        let mut ended: Vec<(usize, Result<TurnFinish, GenerateError>)> = Vec::new();
        let turns = self.active[first..].iter_mut();
        let probabilities = self.probabilities.chunks_exact(vocabulary);
        for (at, (turn, row)) in turns.zip(probabilities).enumerate() {
            let uniform = sampling::uniform(turn.seed, turn.ids.len() as u64);
            match sampling::draw(row, &turn.sampling, uniform) {
                Ok(draw) => {
                    let finish = turn.push(
                        draw,
                        self.version,
                        &self.options.eos_token_ids,
                        self.options.decoder.as_ref(),
                    );
                    if let Some(finish) = finish {
                        ended.push((first + at, Ok(finish)));
                    }
                }
                Err(sampling::NotFinite) => ended.push((
                    first + at,
                    Err(GenerateError::Failed {
                        reason: format!(
                            "the model's scores are not finite under weights of version {}; look at the learner's last steps",
                            self.version
                        ),
                    }),
                )),
            }
        }
        self.shared
            .update(|stats| stats.generated_tokens += rows as u64);
        let mut poisoned = false;
        for (row, outcome) in ended.into_iter().rev() {
            match outcome {
                Ok(finish) => {
                    self.park(row);
                    let turn = self.remove_row(row);
                    self.end(turn, finish);
                }
                Err(error) => {
                    poisoned = true;
                    let turn = self.remove_row(row);
                    if let Some(session) = self.sessions.get_mut(&turn.session) {
                        session.generating = false;
                    }
                    turn.fail(error);
                }
            }
        }
        if poisoned {
            // NaN keys would reach whoever gets the row next.
            self.prefixes.clear();
            self.forget_cached();
            self.cache.clear();
        }
    }

    /// Softmax under each row's own temperature, into `self.probabilities`.
    fn softmax(&mut self, first: usize, scores: &Tensor, count: usize) {
        let temperatures: Vec<f32> = self.active[first..]
            .iter()
            .map(|turn| sampling::temperature(&turn.sampling) as f32)
            .collect();
        let scaled = if temperatures.iter().all(|temperature| *temperature == 1.0) {
            scores.shallow_clone()
        } else {
            scores
                / Tensor::from_slice(&temperatures)
                    .to_device(scores.device())
                    .unsqueeze(1)
        };
        self.probabilities.resize(count, 0.0);
        scaled
            .softmax(-1, Kind::Float)
            .to_device(tch::Device::Cpu)
            .copy_data(&mut self.probabilities, count);
    }

    /// Sets a row's keys and values aside for the session's next turn.
    fn park(&mut self, row: usize) {
        let turn = &self.active[row];
        let Some(session) = self.sessions.get_mut(&turn.session) else {
            return;
        };
        session.parked = Some(Parked {
            ids: turn.ids[..turn.cached].to_vec(),
            kept: self.cache.take_out(row, turn.cached),
            oldest_version: turn.oldest_version,
        });
    }

    /// Takes a turn out; the last row moves into its place.
    fn remove_row(&mut self, row: usize) -> ActiveTurn {
        let last = self.active.len() - 1;
        if row != last {
            self.cache.copy_row(last, row, self.active[last].cached);
        }
        self.active.swap_remove(row)
    }

    fn report(&self, started: Instant) {
        let parked = self
            .sessions
            .values()
            .filter(|session| session.parked.is_some())
            .count();
        self.shared.update(|stats| {
            stats.busy += started.elapsed();
            stats.active_rows = self.active.len();
            stats.waiting_turns = self.waiting.len();
            stats.parked_sessions = parked;
        });
    }
}
