//! One word of a shell, whatever stands in it.

/// Quotes a text so that a POSIX shell, and also fish and csh, read exactly that text as one word. `None` for what no shell
/// can be given: a zero byte; or a line break, which csh would end the command at.
pub fn quoted(text: &str) -> Option<String> {
    if text.contains(['\0', '\n', '\r']) {
        return None;
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    // `=` at the start is a command in zsh, `~` is never plain.
    if !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('=') {
        return Some(text.to_owned());
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for c in text.chars() {
        match c {
            // Out of the quotes, as an escaped character, and in again. fish takes a backslash in quotes for an escape, csh takes
            // `!` for history even there.
            '\'' | '\\' | '!' => {
                quoted.push_str("'\\");
                quoted.push(c);
                quoted.push('\'');
            }
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    Some(quoted)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// What a shell makes of the quoted text, as the one argument of printf.
    fn through(shell: &str, text: &str) -> String {
        let line = format!("printf %s {}", quoted(text).unwrap());
        let output = Command::new(shell).arg("-c").arg(&line).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn hostile_names_come_through_as_they_are() {
        for name in [
            "",
            "a b",
            "it's",
            "$(touch /tmp/x)",
            "`id`",
            "a;rm -rf /",
            "\\",
            "\\'",
            "'''",
            "!x!",
            "-rf",
            "~root",
            "*",
            "a\tb",
            "=ls",
            "ü🦀",
            "\"$HOME\"",
            "a&b|c>d<e",
            "#x",
            "{a,b}",
        ] {
            assert_eq!(through("sh", name), name);
            assert_eq!(through("bash", name), name);
        }
        assert_eq!(quoted("a\0b"), None);
        assert_eq!(quoted("a\nb"), None);
        assert_eq!(
            quoted(".lathe/current/lathe").unwrap(),
            ".lathe/current/lathe"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_text_is_one_word_of_a_shell(text in "[^\0\n\r]{0,40}") {
            prop_assert_eq!(through("sh", &text), text);
        }

        #[test]
        fn any_text_of_special_characters_is_one_word_of_a_shell(text in r#"[ '"\\$`!;&|<>(){}*?~#\[\]a-c]{0,24}"#) {
            prop_assert_eq!(through("sh", &text), text);
        }
    }
}
