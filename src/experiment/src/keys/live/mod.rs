//! The keys that do something here. Paths and defaults are `settings`'s; a test holds the two together.

mod bandit;
mod launch;
mod learning;
mod running;

use super::kind::{Bound, Choices, I64, Kind, U32, U64};

/// A key that has an effect.
#[derive(Debug, Clone)]
pub struct Live {
    pub path: String,
    pub kind: Kind,
    /// Whether `null` is a value: off, or chosen by the program.
    pub nullable: bool,
    /// As JSON.
    pub default: &'static str,
    pub unit: &'static str,
    pub help: &'static str,
}

struct Row {
    path: &'static str,
    kind: Kind,
    nullable: bool,
    default: &'static str,
    unit: &'static str,
    help: &'static str,
}

const fn row(
    path: &'static str,
    kind: Kind,
    default: &'static str,
    unit: &'static str,
    help: &'static str,
) -> Row {
    Row {
        path,
        kind,
        nullable: false,
        default,
        unit,
        help,
    }
}

/// May be null, and is by default.
const fn opt(path: &'static str, kind: Kind, unit: &'static str, help: &'static str) -> Row {
    Row {
        path,
        kind,
        nullable: true,
        default: "null",
        unit,
        help,
    }
}

const fn choice(names: &'static [&'static str], later: &'static [&'static str]) -> Choices {
    Choices {
        now: names,
        also: &[],
        later,
        later_is_dropped: false,
    }
}

const COUNT: Kind = Kind::Int {
    min: 1,
    max: U32,
    off: None,
};
const COUNT_OR_ZERO: Kind = Kind::Int {
    min: 0,
    max: U32,
    off: None,
};
const STEPS: Kind = Kind::Int {
    min: 0,
    max: I64,
    off: None,
};
const EVERY: Kind = Kind::Int {
    min: 1,
    max: I64,
    off: Some(-1),
};
const SEED: Kind = Kind::Int {
    min: 0,
    max: U64,
    off: None,
};
const ROWS: Kind = Kind::Int {
    min: 1,
    max: U64,
    off: Some(-1),
};
const TOP_K: Kind = Kind::Int {
    min: 1,
    max: U32,
    off: Some(-1),
};
const NOT_NEGATIVE: Kind = Kind::Float {
    low: Bound::Closed(0.0),
    high: Bound::None,
};
const POSITIVE: Kind = Kind::Float {
    low: Bound::Open(0.0),
    high: Bound::None,
};
const FLOAT: Kind = Kind::Float {
    low: Bound::None,
    high: Bound::None,
};
const SHARE: Kind = Kind::Probability {
    low: Bound::Closed(0.0),
    high: Bound::Closed(1.0),
};
const SHARE_ABOVE_ZERO: Kind = Kind::Probability {
    low: Bound::Open(0.0),
    high: Bound::Closed(1.0),
};
const SHARE_BELOW_ONE: Kind = Kind::Probability {
    low: Bound::Closed(0.0),
    high: Bound::Open(1.0),
};
const PATHS: Kind = Kind::List(&Kind::Path);

const DTYPE: Kind = Kind::Choice(&Choices {
    now: &["fp32", "bfloat16"],
    also: &["float32", "bf16"],
    later: &["fp16", "float16", "half"],
    later_is_dropped: false,
});
const KL: Choices = Choices {
    now: &[
        "kl",
        "abs",
        "mse",
        "low_var_kl",
        "kl+",
        "abs+",
        "mse+",
        "low_var_kl+",
        "full",
    ],
    also: &["k1", "k2", "k3", "k1+", "k2+", "k3+"],
    later: &[],
    later_is_dropped: false,
};
const AGGREGATION: Choices = choice(
    &[
        "token-mean",
        "token-sum",
        "seq-mean-token-sum",
        "seq-mean-token-mean",
        "seq-mean-token-sum-norm",
    ],
    &[],
);
/// verl's `bypass_mode` is its clipped loss, entered by `rollout_correction.bypass_mode`; a rule joins the two.
const LOSS_MODES: Choices = Choices {
    also: &["bypass_mode"],
    ..choice(&crate::losses::NAMES, &[])
};
const ESTIMATORS: Choices = choice(&crate::estimators::NAMES, &[]);
/// `vllm` and `sglang` are known to the typed experiment; a rule warns about them.
const ENGINES: Choices = choice(&["embedded", "vllm", "sglang"], &["trtllm", "hf"]);
const TOOL_FORMATS: Choices = choice(
    &["hermes", "llama3_json", "react"],
    &[
        "gpt-oss",
        "qwen3_coder",
        "glm",
        "seed",
        "minimax",
        "kimi",
        "deepseek_v4",
        "gemma4",
    ],
);
const LOGGERS: Kind = Kind::Choice(&Choices {
    now: &["console", "file", "tensorboard", "wandb"],
    also: &[],
    later: &[
        "mlflow",
        "swanlab",
        "vemlp_wandb",
        "clearml",
        "trackio",
        "rl_insight",
    ],
    later_is_dropped: true,
});

const OPTIMIZED: [(&str, &str); 3] = [
    ("actor_rollout_ref.actor.optim", "1e-6"),
    ("critic.optim", "1e-5"),
    ("sft.optim", "1e-3"),
];

/// Under each of `OPTIMIZED`.
const OPTIM: &[Row] = &[
    row(
        "lr_warmup_steps",
        Kind::Int {
            min: 0,
            max: I64,
            off: Some(-1),
        },
        "-1",
        "steps",
        "Linear warm-up; above 0 it wins over the ratio.",
    ),
    row(
        "lr_warmup_steps_ratio",
        SHARE,
        "0.0",
        "of all steps",
        "Warm-up as a share of the run, when lr_warmup_steps is not above 0.",
    ),
    row(
        "lr_scheduler_type",
        Kind::Choice(&choice(&["constant", "cosine"], &[])),
        "\"constant\"",
        "",
        "Shape after the warm-up.",
    ),
    row(
        "min_lr_ratio",
        SHARE,
        "0.0",
        "of lr",
        "Floor of the cosine.",
    ),
    row(
        "num_cycles",
        POSITIVE,
        "0.5",
        "cycles",
        "Cosine cycles; 0.5 ends at the floor.",
    ),
    row(
        "weight_decay",
        NOT_NEGATIVE,
        "0.01",
        "",
        "Decoupled weight decay (AdamW).",
    ),
    row(
        "betas",
        Kind::Pair(&SHARE_BELOW_ONE),
        "[0.9, 0.999]",
        "",
        "Adam's decay of the first and second moment.",
    ),
    row(
        "eps",
        POSITIVE,
        "1e-8",
        "",
        "Adam's epsilon (verl takes PyTorch's, the same).",
    ),
    row(
        "clip_grad",
        POSITIVE,
        "1.0",
        "",
        "Cap on the global gradient norm; verl's grad_clip is dead, this is the real one.",
    ),
];

/// Every live key, grouped by block.
pub fn table() -> Vec<Live> {
    let own = learning::LEARNING
        .iter()
        .chain(bandit::BANDIT)
        .chain(running::RUNNING)
        .chain(launch::LAUNCH)
        .map(|row| live(row.path.to_owned(), row));
    let optim = OPTIMIZED.iter().flat_map(|(block, lr)| {
        let lr = Live {
            path: format!("{block}.lr"),
            kind: NOT_NEGATIVE,
            nullable: false,
            default: lr,
            unit: "",
            help: "Peak learning rate.",
        };
        std::iter::once(lr).chain(
            OPTIM
                .iter()
                .map(move |row| live(format!("{block}.{}", row.path), row)),
        )
    });
    let mut rows: Vec<Live> = own.chain(optim).collect();
    let parent = |path: &str| {
        path.rsplit_once('.')
            .map_or(String::new(), |(parent, _)| parent.to_owned())
    };
    let mut parents: Vec<String> = Vec::new();
    for row in &rows {
        let parent = parent(&row.path);
        if !parents.contains(&parent) {
            parents.push(parent);
        }
    }
    // Each block's own keys together, then its inner blocks; stable, so keys keep the order above.
    rows.sort_by_key(|row| {
        let block = BLOCKS.iter().position(|block| row.path.starts_with(block));
        let parent = parent(&row.path);
        (block, parents.iter().position(|seen| *seen == parent))
    });
    rows
}

const BLOCKS: [&str; 12] = [
    "data.",
    "actor_rollout_ref.hybrid_engine",
    "actor_rollout_ref.model.",
    "actor_rollout_ref.actor.",
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.ref.",
    "critic.",
    "algorithm.",
    "reward.",
    "trainer.",
    "sft.",
    "",
];

fn live(path: String, row: &Row) -> Live {
    Live {
        path,
        kind: row.kind,
        nullable: row.nullable,
        default: row.default,
        unit: row.unit,
        help: row.help,
    }
}
