//! Writes a rational number: whole, finite decimal, fraction or rounded decimal.

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{Signed, Zero};

use super::Rational;

/// Whole numbers as digits and finite decimals in full; else a fraction in lowest terms, or, given `decimals`, rounded to
/// so many places, halves away from zero, trailing zeros dropped.
pub fn print(value: &Rational, decimals: Option<u32>) -> String {
    if value.is_integer() {
        return value.numer().to_string();
    }
    match (finite_places(value.denom()), decimals) {
        (Some(places), None) => fixed(value, places),
        (Some(places), Some(decimals)) => fixed(value, places.min(decimals)),
        (None, Some(decimals)) => fixed(value, decimals),
        (None, None) => format!("{}/{}", value.numer(), value.denom()),
    }
}

/// Decimal places of 1/denominator; None when they do not end (a prime factor other than 2 and 5).
fn finite_places(denominator: &BigInt) -> Option<u32> {
    let twos = denominator.trailing_zeros().unwrap_or(0);
    let mut rest = denominator >> twos;
    let five = BigInt::from(5);
    let mut fives = 0;
    loop {
        let (quotient, remainder) = rest.div_rem(&five);
        if !remainder.is_zero() {
            break;
        }
        rest = quotient;
        fives += 1;
    }
    (rest == BigInt::from(1)).then_some((twos as u32).max(fives))
}

/// Rounded to `places`, halves away from zero, without trailing zeros.
fn fixed(value: &Rational, places: u32) -> String {
    let scaled = value.abs() * Rational::from_integer(BigInt::from(10).pow(places));
    let digits = scaled.round().to_integer();
    let sign = if value.is_negative() && !digits.is_zero() {
        "-"
    } else {
        ""
    };
    let digits = format!(
        "{:0>width$}",
        digits.to_string(),
        width = places as usize + 1
    );
    let (whole, fraction) = digits.split_at(digits.len() - places as usize);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tool::calculator::evaluate;

    fn ratio(numerator: i64, denominator: i64) -> Rational {
        Rational::new(numerator.into(), denominator.into())
    }

    #[test]
    fn numbers_are_written_exactly_or_rounded_as_asked() {
        for (numerator, denominator, decimals, expected) in [
            (6, 2, None, "3"),
            (-1, 8, None, "-0.125"),
            (1, 3, None, "1/3"),
            (-22, 7, None, "-22/7"),
            (1, 3, Some(4), "0.3333"),
            (2, 3, Some(4), "0.6667"),
            (5, 2, Some(0), "3"),
            (-5, 2, Some(0), "-3"),
            (-1, 1000, Some(2), "0"),
            (1, 8, Some(2), "0.13"),
            (1, 8, Some(9), "0.125"),
            (100, 1, Some(2), "100"),
        ] {
            assert_eq!(print(&ratio(numerator, denominator), decimals), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_exactly_reads_back_as_the_same_number(
            numerator in any::<i64>(), denominator in 1i64..1_000_000,
        ) {
            let value = ratio(numerator, denominator);
            prop_assert_eq!(evaluate(&print(&value, None)), Ok(value));
        }

        #[test]
        fn a_rounded_number_is_within_half_a_unit_of_its_last_place(
            numerator in -1_000_000i64..1_000_000, denominator in 1i64..10_000, decimals in 0u32..8,
        ) {
            let value = ratio(numerator, denominator);
            let read = evaluate(&print(&value, Some(decimals))).expect("a number");
            let unit = Rational::new(1.into(), BigInt::from(10).pow(decimals));
            prop_assert!((read - value).abs() * Rational::from_integer(2.into()) <= unit);
        }
    }
}
