//! Real programs in real sandboxes; where this machine allows none, said on stderr and passed over.

use serde_json::json;

use super::super::scorers::sample;
use super::*;

/// None: there is no python3 here, or the machine allows no sandbox.
fn code(settings: Settings) -> Option<Code> {
    let code = Code::new(settings, Sees::default());
    match code.waiting.describe() {
        Ok(_) => Some(code),
        Err(problem) => {
            let is_here = problem.contains("this machine allows no sandbox")
                || problem.contains("cannot start python3");
            assert!(is_here, "{problem}");
            eprintln!("skipped: {problem}");
            None
        }
    }
}

fn partial() -> Settings {
    Settings {
        partial: true,
        ..Settings::default()
    }
}

async fn value(code: &Code, answer: &str, truth: &Value) -> f64 {
    let score = code.score(&sample(answer, truth.clone())).await;
    score.expect("a score").value
}

fn sums() -> Value {
    json!({"inputs": ["1 2\n", "3 4\n", "-5 5\n", "10 20\n"], "outputs": ["3\n", "7", "0", "30\n"]})
}

#[tokio::test]
async fn a_program_is_judged_by_what_it_prints() {
    let Some(code) = code(Settings::default()) else {
        return;
    };
    let fenced = |program: &str| format!("Here it is:\n```python\n{program}\n```\nDone.");
    for (program, expected) in [
        ("a, b = map(int, input().split())\nprint(a + b)", 1.0),
        (
            "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))",
            1.0,
        ),
        ("print(sum(map(int, open(0).read().split())))\nexit(1)", 1.0),
        (
            "if __name__ == '__main__':\n    print(eval(input().replace(' ', '+')))",
            1.0,
        ),
        (
            "import threading\nthreading.Thread(target=lambda: print(sum(map(int, input().split())))).start()",
            1.0,
        ),
        // Names that verl's judge provides.
        ("print(reduce(add, map(int, input().split())))", 1.0),
        ("a, b = map(int, input().split())\nprint(abs(a) + b)", 0.0),
        ("print(3)", 0.0),
        (
            "a, b = map(int, input().split())\nprint(a + b)\nraise ValueError",
            0.0,
        ),
        ("print(3", 0.0),
        // Errors are not what was asked for.
        (
            "import sys\nprint(sum(map(int, input().split())), file=sys.stderr)",
            0.0,
        ),
    ] {
        assert_eq!(
            value(&code, &fenced(program), &sums()).await,
            expected,
            "{program}"
        );
    }
    // Without a fence it is all program; the last block counts; another language is none.
    let good = "print(sum(map(int, input().split())))";
    assert_eq!(value(&code, good, &sums()).await, 1.0);
    let two = format!("```python\nprint(0)\n```\nNo:\n```\n{good}\n```\n```text\n3\n```");
    assert_eq!(value(&code, &two, &sums()).await, 1.0);
    let score = code
        .score(&sample("```js\n1\n```", sums()))
        .await
        .expect("a score");
    assert_eq!((score.value, score.parts["format"]), (0.0, 0.0));
}

#[tokio::test]
async fn with_partial_the_share_of_the_first_ten_tests_counts() {
    let Some(code) = code(partial()) else { return };
    let three_of_four =
        "```python\na, b = map(int, input().split())\nprint(a + b if a > 0 else 9)\n```";
    let score = code
        .score(&sample(three_of_four, sums()))
        .await
        .expect("a score");
    assert_eq!(score.value, 0.75);
    assert_eq!(score.parts["tests"], 4.0);
    let many = json!({
        "inputs": (0..12).map(|at| at.to_string()).collect::<Vec<_>>(),
        "outputs": (0..12).map(|at| at.to_string()).collect::<Vec<_>>(),
    });
    let below_ten = "```python\nn = int(input())\nprint(n if n < 10 else 0)\n```";
    assert_eq!(value(&code, below_ten, &many).await, 1.0);
    // As text, as verl's data has it.
    assert_eq!(value(&code, below_ten, &json!(many.to_string())).await, 1.0);
}

#[tokio::test]
async fn a_function_is_judged_by_what_it_gives() {
    let Some(code) = code(partial()) else { return };
    let truth = json!({"fn_name": "total", "inputs": ["1\n2", [3, 4]], "outputs": ["3", [7]]});
    for (program, expected) in [
        (
            "def total(a, b):\n    print('noise')\n    return a + b",
            1.0,
        ),
        (
            "class Solution:\n    def total(self, a: int, b: int) -> Optional[int]:\n        return a + b",
            1.0,
        ),
        ("def total(a, b):\n    return 3", 0.5),
        ("def other(a, b):\n    return a + b", 0.0),
        ("print(3)", 0.0),
    ] {
        let answer = format!("```python\n{program}\n```");
        assert_eq!(value(&code, &answer, &truth).await, expected, "{program}");
    }
    let keyed = json!({"fn_name": "f", "inputs": ["{\"1\": 2}"], "outputs": ["[1, 2]"]});
    let answer = "```python\ndef f(d):\n    return tuple(next(iter(d.items())))\n```";
    assert_eq!(value(&code, answer, &keyed).await, 1.0);
}

#[tokio::test]
async fn assertions_must_be_come_to_the_end_of() {
    let Some(code) = code(partial()) else { return };
    let truth = json!([
        "assert double(2) == 4",
        "assert double(0) == 0\nassert double(-1) == -2"
    ]);
    for (program, expected) in [
        ("def double(n):\n    return 2 * n", 1.0),
        ("def double(n):\n    return abs(2 * n)", 0.5),
        ("def double(n):\n    return 5", 0.0),
        // Ends that look like success.
        ("import os\nos._exit(0)", 0.0),
        ("raise SystemExit(0)", 0.0),
        ("def double(n):\n    exit(0)", 0.0),
    ] {
        let answer = format!("```python\n{program}\n```");
        assert_eq!(value(&code, &answer, &truth).await, expected, "{program}");
    }
}

#[tokio::test]
async fn whatever_a_program_does_costs_it_its_test_and_the_next_one_works() {
    let settings = Settings {
        test_timeout_s: 2.0,
        ..partial()
    };
    let Some(code) = code(settings) else { return };
    let good = "```python\nprint(sum(map(int, input().split())))\n```";
    for program in [
        "while True: pass",
        "import os\nwhile True: os.fork()",
        "while True: print('x' * 100000)",
        "x = []\nwhile True: x.append(bytearray(1 << 24))",
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
        "import os\nos.kill(-1, 9)",
        "import time\ntime.sleep(100)",
        "open('/etc/passwd').read(); print('root')",
        "import socket\nsocket.create_connection(('1.1.1.1', 80))\nprint(3)",
        "def f(): f()\nf()",
        "import os\nos.write(1, b'\\x00' * 33 + b'{\"good\": true, \"last\": false}\\n')",
    ] {
        // Two of four tests are enough to show that what it did to the first is no matter to the second.
        let mut truth = sums();
        for list in ["inputs", "outputs"] {
            truth[list].as_array_mut().expect("a list").truncate(1);
        }
        let answer = format!("```python\n{program}\n```");
        let score = code.score(&sample(&answer, truth)).await.expect("a score");
        assert_eq!(score.value, 0.0, "{program}");
        assert_eq!(value(&code, good, &sums()).await, 1.0, "after {program}");
    }
}

#[tokio::test]
async fn nothing_of_one_test_is_left_for_the_next() {
    let Some(code) = code(partial()) else { return };
    // Right the second time, if it could remember the first.
    let program = "import os\nwas = os.path.exists('/tmp/x')\nopen('/tmp/x', 'w').close()\nprint('again' if was else 'first')";
    let truth = json!({"inputs": ["", "", ""], "outputs": ["first", "first", "first"]});
    let answer = format!("```python\n{program}\n```");
    assert_eq!(value(&code, &answer, &truth).await, 1.0);
}

#[test]
fn a_ground_truth_that_is_no_tests_is_refused() {
    let code = Code::new(Settings::default(), Sees::default());
    for truth in [
        json!("12"),
        json!(12),
        json!({}),
        json!({"inputs": [], "outputs": []}),
        json!({"inputs": ["1"], "outputs": []}),
        json!({"fn_name": "f", "inputs": ["not json"], "outputs": ["1"]}),
        json!("{\"inputs\": ["),
        json!([]),
        json!(["assert True", "nothing"]),
    ] {
        assert!(
            matches!(code.tests(&truth), Err(ScoreError::GroundTruth { .. })),
            "{truth}"
        );
    }
}
