use std::fmt::Write as _;

use proptest::prelude::*;

use super::super::reference::cases;
use super::MathEqual;

#[rustfmt::skip]
const EQUAL: &[(&str, &str)] = &[
    // Numbers in different notation.
    ("42", "42."), ("042", "42"), (".5", "0.5"), ("-.5", "-0.5"), ("1,000", "1000"), ("1{,}000", "1000"), ("12\\,345", "12345"),
    ("1,234,567", "1234567"), ("1e3", "1000"), ("1.2\\times10^{3}", "1200"), ("1.2 \\cdot 10^{-3}", "0.0012"), ("−5", "-5"),
    ("2.50", "2.5"), ("$7$", "7"), ("\\(7\\)", "7"), ("7\\%", "7"), ("50%", "0.5"), ("0.\\overline{3}", "\\frac13"),
    ("0.1\\overline{6}", "\\frac{1}{6}"),
    // Fractions.
    ("\\frac{1}{2}", "0.5"), ("\\frac12", "1/2"), ("\\dfrac{10}{4}", "\\frac{5}{2}"), ("10/5", "2"), ("\\frac{-1}{2}", "-\\frac{1}{2}"),
    ("2\\frac{1}{2}", "2.5"), ("2 1/2", "5/2"), ("-1\\frac12", "-1.5"), ("\\frac1{72}", "1/72"), ("\\frac{\\sqrt3}{3}", "\\frac{1}{\\sqrt{3}}"),
    ("\\frac{\\frac12}{3}", "\\frac16"),
    // Radicals and powers.
    ("\\sqrt{8}", "2\\sqrt2"), ("\\sqrt 3", "\\sqrt{3}"), ("2\\sqrt 3", "\\sqrt{12}"), ("\\sqrt[3]{54}", "3\\sqrt[3]2"), ("\\sqrt[3]{-8}", "-2"),
    ("\\sqrt{4}", "2"), ("3^{\\frac12}", "\\sqrt3"), ("2^{10}", "1024"), ("2^10", "1024"), ("\\sqrt{5+2\\sqrt6}", "\\sqrt2+\\sqrt3"),
    ("8^{2/3}", "4"), ("sqrt(3)/2", "\\frac{\\sqrt{3}}{2}"),
    // Constants and functions.
    ("2\\pi", "\\pi\\cdot2"), ("\\frac{\\pi}{2}", "0.5\\pi"), ("π/4", "\\tfrac{\\pi}4"), ("\\sin 30^\\circ", "\\frac12"), ("\\log_2 8", "3"),
    ("\\ln e^2", "2"), ("5!", "120"), ("\\binom{5}{2}", "10"), ("|-3|", "3"), ("\\lfloor 2.7 \\rfloor", "2"), ("\\cos \\pi", "-1"),
    ("(1+i)^2", "2i"), ("3+4i", "4i+3"), ("e^{i\\pi}", "-1"), ("\\sin^2 x + \\cos^2 x", "1"),
    // Formulas.
    ("(x+1)^2", "x^2+2x+1"), ("x(x-1)", "x^2-x"), ("\\frac{x^2-1}{x-1}", "x+1"), ("2(a+b)", "2a+2b"), ("x_1+x_2", "x_{2} + x_{1}"),
    ("-x^2", "-(x^2)"), ("\\alpha\\beta", "\\beta \\alpha"), ("xy", "yx"), ("n!", "n!"),
    // Names, equations, inequalities.
    ("x=5", "5"), ("5", "x = 5"), ("f(x)=x^2", "x^2"), ("y=2x+1", "2x-y+1=0"), ("x+y=1", "2x+2y=2"), ("y=2x+1", "y = 1 + 2x"),
    ("x \\ge 3", "[3,\\infty)"), ("3 \\leq x", "x\\geq 3"), ("2<x\\le5", "(2,5]"), ("x\\in(1,2)", "(1,2)"), ("5 > x > 2", "(2,5)"),
    // Lists, sets, tuples, intervals, matrices.
    ("1,2", "2, 1"), ("1 and 2", "1, 2"), ("\\{1,2\\}", "\\{2,1\\}"), ("1, 2, 3", "\\{3, 2, 1\\}"), ("\\left(1,2\\right)", "(1, 2)"),
    ("(\\frac{1}{2}, 3)", "(0.5,3)"), ("\\pm 2", "2, -2"), ("1\\pm\\sqrt3", "1-\\sqrt3, 1+\\sqrt3"),
    ("(-\\infty,1)\\cup(2,\\infty)", "(2,\\infty)\\cup(-\\infty,1)"), ("\\emptyset", "\\{\\}"),
    ("\\begin{pmatrix}1 & 2 \\\\ 3 & 4\\end{pmatrix}", "\\begin{bmatrix} 1 & \\frac{4}{2} \\\\ 3 & 4 \\end{bmatrix}"),
    // Units and words.
    ("5\\text{ cm}", "5"), ("5 cm", "5\\text{cm}"), ("90^\\circ", "90"), ("90^{\\circ}", "90\\text{ degrees}"), ("\\$5", "5"), ("3 \\text{ apples}", "3"),
    ("12 cm^2", "12\\text{ cm}^2"), ("\\text{Yes}", "yes"), ("\\text{even}", "even"), ("\\text{(B)}", "\\text{(b)}"), ("(C)", "\\text{C}"), ("1011_2", "1011_{2}"),
    ("10\\text{ a.m.}", "10\\text{ a.m.}"),
];

#[rustfmt::skip]
const UNEQUAL: &[(&str, &str)] = &[
    ("42", "43"), ("1.000001", "1"), ("0.33", "1/3"), ("0.333333333", "\\frac13"), ("1.41", "\\sqrt2"), ("100000000000000000001", "100000000000000000000"),
    ("\\frac12", "2"), ("\\frac{1}{2}", "\\frac{1}{3}"), ("12", "1/2"), ("\\sqrt{8}", "2"), ("\\sqrt2", "-\\sqrt2"), ("2^{10}", "2^{11}"), ("-2^2", "4"),
    ("\\pi", "3.14"), ("\\pi", "3.14159265"), ("(x+1)^2", "x^2+1"), ("x^2", "x^3"), ("x", "y"), ("2x", "2"), ("A", "a"), ("A", "B"),
    ("x=5", "x=6"), ("x=5", "y=5"), ("y=2x+1", "y=2x-1"), ("x+y=1", "x-y=1"), ("x>2", "x\\ge2"), ("x>2", "x<2"), ("(1,2)", "[1,2]"), ("(1,2]", "[1,2)"),
    ("(1,2)", "(2,1)"), ("1,2", "1,3"), ("1,2", "1"), ("1,2", "1,2,3"), ("1,1,2", "1,2,2"), ("(1,2)", "1,2"), ("\\pm2", "2"), ("\\{1\\}", "1"),
    ("\\begin{pmatrix}1&2\\end{pmatrix}", "\\begin{pmatrix}1\\\\2\\end{pmatrix}"), ("5\\text{ cm}", "5\\text{ m}"), ("5 cm", "6 cm"), ("50\\%", "5"),
    ("\\text{Yes}", "\\text{No}"), ("even", "odd"), ("\\text{Yes}", "1"), ("", "0"), ("1/0", "2/0"), ("\\frac{x}{0}", "\\frac{y}{0}"), ("1011_2", "1011_3"),
    ("\\infty", "-\\infty"), ("(-\\infty,1)\\cup(2,\\infty)", "(-\\infty,1)"), ("i", "1"), ("3+4i", "3-4i"), ("5!", "60"), ("|x|", "x"), ("\\sin x", "\\cos x"),
];

#[test]
fn what_is_equal_is_found_equal() {
    let missed: Vec<_> = EQUAL
        .iter()
        .filter(|(left, right)| {
            !MathEqual::is_equal(left, right) || !MathEqual::is_equal(right, left)
        })
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn what_is_not_equal_is_found_unequal() {
    let wrong: Vec<_> = UNEQUAL
        .iter()
        .filter(|(left, right)| {
            MathEqual::is_equal(left, right) || MathEqual::is_equal(right, left)
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The 500 answers of MATH-500 as its authors write them.
fn math_500() -> Vec<String> {
    serde_json::from_str(include_str!("../../../tests/data/scores/math500.json"))
        .expect("valid test data")
}

#[test]
fn nearly_every_answer_of_math_500_is_read_and_is_equal_to_itself_by_its_value() {
    let answers = math_500();
    assert_eq!(answers.len(), 500);
    let is_self = |answer: &String| {
        let readings = super::readings(answer);
        readings
            .iter()
            .any(|reading| super::compare::same(reading, reading))
    };
    let unread: Vec<&String> = answers.iter().filter(|answer| !is_self(answer)).collect();
    assert!(unread.len() <= 6, "{unread:#?}");
}

/// Which different answers of MATH-500 are one: every pair of two texts that are found equal.
#[test]
fn different_answers_of_math_500_are_told_apart() {
    let mut answers = math_500();
    answers.sort();
    answers.dedup();
    let mut pairs = String::new();
    for (index, left) in answers.iter().enumerate() {
        for right in &answers[index + 1..] {
            if MathEqual::is_equal(left, right) {
                writeln!(pairs, "{left}   =   {right}").expect("a text takes all");
            }
        }
    }
    insta::assert_snapshot!(pairs);
}

#[test]
fn what_the_reference_accepts_is_accepted() {
    // The reference drops the last `\text{ …}` whatever it says, and `\\` means no line break to it.
    let known = ["1\\\\2"];
    for case in cases("math") {
        let solution = case["solution"].as_str().expect("text");
        if case["math_reward"].as_f64() != Some(1.0) || case["note"] == "mutated" {
            continue;
        }
        let truth = case["ground_truth"].as_str().expect("text");
        let answer = MathEqual::extract(solution).expect("an answer");
        assert!(
            MathEqual::is_equal(&answer, truth) || known.contains(&answer.as_str()),
            "{answer} and {truth}"
        );
    }
}

#[test]
fn an_answer_is_found_in_its_box_or_behind_the_word() {
    for (text, answer) in [
        (
            "so \\boxed{1} no, \\boxed{\\frac{1}{2}}.",
            Some("\\frac{1}{2}"),
        ),
        ("The final answer is: $x^2$ since", Some("x^2")),
        ("**Answer:** 5\nbye", Some("5")),
        ("#### 72", Some("72")),
        ("it is 5", None),
        ("", None),
    ] {
        assert_eq!(MathEqual::extract(text).as_deref(), answer, "{text}");
    }
}

#[test]
fn deep_and_long_answers_are_refused_in_time() {
    for text in [
        "(".repeat(500),
        "{\\sqrt".repeat(80),
        "\\frac".repeat(100),
        "-".repeat(500),
        "1+".repeat(180) + "1",
        "9^".repeat(100) + "9",
        "((((9^9)^9)^9)^9)^9".to_owned(),
        "\\pm".repeat(100),
        "1,".repeat(250),
        "x".repeat(100_000),
        "500!!!!!!!!!!!!".to_owned(),
    ] {
        let other = text.replace('1', "2") + "0";
        let _ = MathEqual::is_equal(&text, &other);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_crash(text in r"([0-9.,x+\-*/^_(){}\[\]=<>!|%$ ]|\\frac|\\sqrt|\\pi|\\pm|\\text\{|\\begin\{matrix\}|\\end\{matrix\}|\\cup|\\overline|\\circ|log|sin|e){0,40}") {
        let _ = MathEqual::is_equal(&text, "1");
        prop_assert!(MathEqual::is_equal(&text, &text));
    }

    #[test]
    fn a_fraction_is_equal_to_what_it_reduces_to(above in -99i64..99, below in 1i64..99, factor in 1i64..99) {
        let left = format!("\\frac{{{}}}{{{}}}", above * factor, below * factor);
        let right = format!("{above}/{below}");
        prop_assert!(MathEqual::is_equal(&left, &right));
        let wrong = format!("{}/{below}", above + 1);
        prop_assert!(!MathEqual::is_equal(&left, &wrong));
    }
}
