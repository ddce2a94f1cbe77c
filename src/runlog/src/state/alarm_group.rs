//! A run's alarms by name: one that came a hundred times is one line.

use super::AlarmRecord;

/// Alarms of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct AlarmGroup<'a> {
    pub name: &'a str,
    pub count: usize,
    /// None: no alarm of it names a step.
    pub first_step: Option<u64>,
    pub last: &'a AlarmRecord,
}

impl<'a> AlarmGroup<'a> {
    /// In the order of each one's latest alarm, the oldest first.
    pub fn of(alarms: impl IntoIterator<Item = &'a AlarmRecord>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for alarm in alarms {
            let known = groups.iter().position(|group| group.name == alarm.name);
            let before = known.map(|at| groups.remove(at));
            groups.push(Self {
                name: &alarm.name,
                count: before.as_ref().map_or(0, |group| group.count) + 1,
                first_step: before.and_then(|group| group.first_step).or(alarm.step),
                last: alarm,
            });
        }
        groups
    }

    /// `all groups equal, 5 times from step 3 on, the last at step 80: in step 80 …`
    pub fn words(&self) -> String {
        let step = self.last.step.map(|step| format!(" at step {step}"));
        let step = step.unwrap_or_default();
        let times = match (self.count, self.first_step) {
            (1, _) => step,
            (count, None) => format!(", {count} times, the last{step}"),
            (count, Some(first)) => {
                format!(", {count} times from step {first} on, the last{step}")
            }
        };
        format!("{}{times}: {}", self.name, self.last.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(name: &str, step: Option<u64>, message: &str) -> AlarmRecord {
        AlarmRecord {
            elapsed_ms: 0.0,
            name: name.to_owned(),
            step,
            message: message.to_owned(),
        }
    }

    #[test]
    fn alarms_of_one_name_are_told_once_with_their_number_and_the_last_of_them() {
        let alarms = [
            alarm("full disk", None, "no room"),
            alarm("all groups equal", Some(3), "in step 3"),
            alarm("slow", Some(4), "it is slow"),
            alarm("full disk", None, "still no room"),
            alarm("all groups equal", Some(9), "in step 9"),
        ];
        let words: Vec<String> = AlarmGroup::of(&alarms)
            .iter()
            .map(AlarmGroup::words)
            .collect();
        assert_eq!(
            words,
            [
                "slow at step 4: it is slow",
                "full disk, 2 times, the last: still no room",
                "all groups equal, 2 times from step 3 on, the last at step 9: in step 9",
            ]
        );
    }
}
