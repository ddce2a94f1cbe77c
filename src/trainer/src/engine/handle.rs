//! Starting and stopping the engine, and what others hold of it: requests, swaps, numbers.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use dialogue::generate::{BoxFuture, GenerateError, Generator, SessionId, Turn, TurnRequest};
use tokio::sync::oneshot;

use super::forward::check_vocabulary;
use super::turn::Reply;
use super::weights::WeightBuffer;
use super::worker::Worker;
use crate::model::config::ModelConfig;

/// Commands that may wait for the worker, which looks between two decode steps (milliseconds). When full, the caller's thread
/// waits for it.
const COMMAND_BOUND: usize = 8192;

type DecodeFn = dyn Fn(&[u32]) -> String + Send + Sync;

/// Tokens to text, for stop strings.
#[derive(Clone)]
pub struct TokenDecoder(Arc<DecodeFn>);

impl TokenDecoder {
    pub fn new(decode: impl Fn(&[u32]) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(decode))
    }

    pub(super) fn decode(&self, ids: &[u32]) -> String {
        (self.0)(ids)
    }
}

impl std::fmt::Debug for TokenDecoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TokenDecoder")
    }
}

/// How an engine runs.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Tokens of a whole dialogue, prompt included (`rollout.max_model_len`).
    pub max_length_tokens: usize,
    /// Turns decoded together (`rollout.max_num_seqs`); more wait in order of arrival.
    pub max_rows: usize,
    /// Prompt tokens computed in one go; more wait for the next round. Bounds the memory of a prefill.
    pub max_prefill_tokens: usize,
    /// Libtorch's intra-op threads for the worker.
    pub threads: i32,
    /// Batches do not depend on timing (`rollout.full_determinism`). Before each step the engine waits until every open session has
    /// asked for a turn or was released, joins go by session id, and a swap waits until no session is open. Open all sessions of a
    /// batch before the first `generate`.
    pub lockstep: bool,
    /// After a swap, go on with the keys and values that older weights made. False: compute them again, so that every token
    /// is drawn from the weights that its `policy_version` names, and from no mixture.
    pub keep_kv_on_swap: bool,
    /// Ids that end a turn unless the request says `ignore_eos`.
    pub eos_token_ids: Vec<u32>,
    /// Needed for stop strings only.
    pub decoder: Option<TokenDecoder>,
}

impl EngineOptions {
    /// One thread, 256 rows, the model's own limits and end tokens.
    pub fn new(config: &ModelConfig) -> Self {
        Self {
            max_length_tokens: config.max_position_embeddings as usize,
            max_rows: 256,
            max_prefill_tokens: 8192,
            threads: 1,
            lockstep: false,
            keep_kv_on_swap: false,
            eos_token_ids: config.eos_token_ids.clone(),
            decoder: None,
        }
    }
}

/// Counts since the engine started; the last four are of now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EngineStats {
    /// Tokens drawn.
    pub generated_tokens: u64,
    pub decode_steps: u64,
    /// Context tokens computed.
    pub prefill_tokens: u64,
    /// Context tokens whose keys and values were there already.
    pub reused_tokens: u64,
    pub turns: u64,
    pub swaps: u64,
    /// Spent computing, as opposed to waiting for requests.
    pub busy: Duration,
    /// Of that, in prefill.
    pub prefill: Duration,
    /// Rollouts stood still for swaps.
    pub swap_blocked: Duration,
    pub policy_version: u64,
    pub active_rows: usize,
    pub waiting_turns: usize,
    pub parked_sessions: usize,
}

/// What came of a swap.
#[derive(Debug)]
pub struct Swapped {
    /// From the end of one decode step to when the next could begin.
    pub blocked: Duration,
    /// The buffer that generated until now, free to be filled.
    pub previous: WeightBuffer,
}

pub(super) enum Command {
    Open(SessionId),
    Generate(TurnRequest, Reply),
    Release(SessionId),
    Swap(SwapRequest),
    Shutdown,
}

pub(super) struct SwapRequest {
    pub buffer: WeightBuffer,
    pub version: u64,
    pub reply: oneshot::Sender<Swapped>,
}

/// What worker and handles share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    stats: Mutex<EngineStats>,
    /// Why the worker ended, once it has.
    stopped: OnceLock<String>,
}

impl Shared {
    pub fn update(&self, change: impl FnOnce(&mut EngineStats)) {
        change(&mut self.stats.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Owns the worker thread; dropping it stops the worker and waits for it.
#[derive(Debug)]
pub struct Engine {
    handle: EngineHandle,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the worker with these weights, known as `version`.
    pub fn start(
        weights: WeightBuffer,
        version: u64,
        options: EngineOptions,
    ) -> std::io::Result<Self> {
        let (commands, inbox) = sync_channel(COMMAND_BOUND);
        let shared = Arc::new(Shared::default());
        let handle = EngineHandle {
            commands,
            shared: Arc::clone(&shared),
            config: Arc::clone(weights.config()),
            layout: (weights.kind(), weights.device()),
            max_length_tokens: options.max_length_tokens,
            has_decoder: options.decoder.is_some(),
        };
        let thread = std::thread::Builder::new()
            .name("lathe-engine".into())
            .spawn(move || {
                // Before any other call into libtorch on this thread.
                tch::set_num_threads(options.threads);
                let mut worker = Worker::new(weights, version, options, inbox, Arc::clone(&shared));
                let outcome =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run()));
                let reason = match outcome {
                    Ok(()) => "it was shut down".to_owned(),
                    Err(panic) => panic_text(panic.as_ref()),
                };
                // Before the worker goes: whoever finds the reply gone reads the reason.
                drop(shared.stopped.set(reason));
                drop(worker);
            })?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }

    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Stops the worker; turns under way end with [`GenerateError::Stopped`].
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Fails when the worker is gone already.
        drop(self.handle.commands.send(Command::Shutdown));
        if let Some(thread) = self.thread.take() {
            // The worker catches its panics.
            drop(thread.join());
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown");
    // libtorch appends a C++ backtrace.
    let first = text.lines().next().unwrap_or(text);
    format!("it panicked: {first}")
}

/// Sends requests to an engine. Cheap to clone; outliving the engine is fine, every call then says why it stopped.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    commands: SyncSender<Command>,
    shared: Arc<Shared>,
    config: Arc<ModelConfig>,
    layout: (tch::Kind, tch::Device),
    max_length_tokens: usize,
    has_decoder: bool,
}

impl EngineHandle {
    /// Puts `buffer` in place of the current weights between two decode steps. Tokens drawn from then on carry `version`. What is
    /// cached is computed again unless `keep_kv_on_swap`; that time is not in `blocked`, it counts as prefill.
    pub async fn swap(&self, buffer: WeightBuffer, version: u64) -> Result<Swapped, GenerateError> {
        if buffer.config() != &self.config || (buffer.kind(), buffer.device()) != self.layout {
            return Err(GenerateError::Failed {
                reason: "the new weights have another shape, dtype or device than the engine's"
                    .into(),
            });
        }
        let (reply, answer) = oneshot::channel();
        self.send(Command::Swap(SwapRequest {
            buffer,
            version,
            reply,
        }))?;
        answer.await.map_err(|_| self.stopped())
    }

    pub fn stats(&self) -> EngineStats {
        *self
            .shared
            .stats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, command: Command) -> Result<(), GenerateError> {
        self.commands.send(command).map_err(|_| self.stopped())
    }

    fn stopped(&self) -> GenerateError {
        GenerateError::Stopped {
            reason: self
                .shared
                .stopped
                .get()
                .cloned()
                .unwrap_or_else(|| "it is shutting down".into()),
        }
    }

    fn check(&self, request: &TurnRequest) -> Result<(), GenerateError> {
        check_vocabulary(&self.config, &request.context_ids)?;
        if request.context_ids.is_empty() {
            return Err(GenerateError::Refused {
                reason: "the context is empty; a turn needs at least one token before it".into(),
            });
        }
        if request.context_ids.len() >= self.max_length_tokens {
            return Err(GenerateError::ContextTooLong {
                context: request.context_ids.len(),
                limit: self.max_length_tokens,
            });
        }
        if !request.sampling.stop_strings.is_empty() && !self.has_decoder {
            return Err(GenerateError::Refused {
                reason: "stop strings need an engine that was given a token decoder".into(),
            });
        }
        Ok(())
    }
}

impl Generator for EngineHandle {
    fn open(&self, session: SessionId) {
        // A stopped engine says so when the first turn is asked for.
        drop(self.send(Command::Open(session)));
    }

    fn generate(&self, request: TurnRequest) -> BoxFuture<'_, Result<Turn, GenerateError>> {
        Box::pin(async move {
            self.check(&request)?;
            let (reply, answer) = oneshot::channel();
            self.send(Command::Generate(request, reply))?;
            answer.await.unwrap_or_else(|_| Err(self.stopped()))
        })
    }

    fn release(&self, session: SessionId) {
        drop(self.send(Command::Release(session)));
    }
}
