//! Names of other trackers' metrics that mean exactly what one of ours means. verl's are ours already; whatever is not here
//! keeps its name.

use std::borrow::Cow;

use crate::Format;

/// `MLflow`'s system metrics, and ours in the same unit.
const MLFLOW: [(&str, &str); 1] = [("system/cpu_utilization_percentage", "host/cpu_percent")];
/// The same of a GPU: what stands before and after its number.
const MLFLOW_GPU: [(&str, &str); 2] = [
    ("_utilization_percentage", "utilization_percent"),
    ("_power_usage_watts", "power_watts"),
];

/// The name under which a metric is shown.
pub fn ours(format: Format, name: &str) -> Cow<'_, str> {
    if !matches!(format, Format::Mlflow | Format::MlflowSqlite) || !name.starts_with("system/") {
        return Cow::Borrowed(name);
    }
    if let Some((_, ours)) = MLFLOW.iter().find(|(theirs, _)| *theirs == name) {
        return Cow::Borrowed(ours);
    }
    let of_gpu = name.strip_prefix("system/gpu_").and_then(|rest| {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (index, rest) = rest.split_at(digits);
        let (_, ours) = MLFLOW_GPU.iter().find(|(theirs, _)| *theirs == rest)?;
        (digits > 0).then(|| format!("gpu/{index}/{ours}"))
    });
    of_gpu.map_or(Cow::Borrowed(name), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equals_are_renamed() {
        let of = |name| ours(Format::Mlflow, name);
        assert_eq!(of("system/gpu_12_power_usage_watts"), "gpu/12/power_watts");
        // Megabytes are no bytes.
        let megabytes = "system/gpu_0_memory_usage_megabytes";
        assert_eq!(of(megabytes), megabytes);
        assert_eq!(of("actor/pg_loss"), "actor/pg_loss");
        assert_eq!(
            ours(Format::Wandb, "system/cpu_utilization_percentage"),
            "system/cpu_utilization_percentage"
        );
        for (_, name) in MLFLOW {
            assert!(runlog::metrics::lookup(name).is_some(), "{name}");
        }
    }
}
