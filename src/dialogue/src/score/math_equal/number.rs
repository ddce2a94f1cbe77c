//! Numbers of the MATH scorer: exact fractions as long as they stay so, else complex floating point.

use num_bigint::BigInt;
use num_rational::Ratio;
use num_traits::{One, Signed, ToPrimitive, Zero};

pub type Rational = Ratio<BigInt>;

/// Bits of a numerator or denominator beyond which a number is carried as a float.
const MOST_BITS: u64 = 4096;
/// Two floats are one number when they differ by no more than this part of the larger.
const RELATIVE: f64 = 1e-11;
/// … or by no more than this: what `sin π` leaves.
const ABSOLUTE: f64 = 1e-14;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Complex {
    pub re: f64,
    pub im: f64,
}

impl Complex {
    pub const fn new(re: f64, im: f64) -> Self {
        Self { re, im }
    }

    pub const fn real(re: f64) -> Self {
        Self::new(re, 0.0)
    }

    fn magnitude(self) -> f64 {
        self.re.hypot(self.im)
    }

    fn times(self, other: Self) -> Self {
        Self::new(
            self.re * other.re - self.im * other.im,
            self.re * other.im + self.im * other.re,
        )
    }

    fn inverse(self) -> Self {
        let square = self.re * self.re + self.im * self.im;
        Self::new(self.re / square, -self.im / square)
    }

    fn exp(self) -> Self {
        let size = self.re.exp();
        Self::new(size * self.im.cos(), size * self.im.sin())
    }

    fn ln(self) -> Self {
        Self::new(self.magnitude().ln(), self.im.atan2(self.re))
    }

    fn power(self, exponent: Self) -> Self {
        if self.magnitude() == 0.0 {
            return match exponent {
                Self { re, .. } if re > 0.0 => Self::real(0.0),
                Self { re: 0.0, im: 0.0 } => Self::real(1.0),
                _ => Self::real(f64::NAN),
            };
        }
        if self.im == 0.0 && exponent.im == 0.0 && (self.re > 0.0 || exponent.re.fract() == 0.0) {
            return Self::real(self.re.powf(exponent.re));
        }
        self.ln().times(exponent).exp()
    }
}

/// A value: exact, or not.
#[derive(Debug, Clone, PartialEq)]
pub enum Number {
    Exact(Rational),
    Float(Complex),
}

impl Number {
    pub fn int(value: i64) -> Self {
        Self::Exact(Rational::from_integer(value.into()))
    }

    pub fn exact(value: Rational) -> Self {
        if value.numer().bits() > MOST_BITS || value.denom().bits() > MOST_BITS {
            return Self::Float(Complex::real(to_f64(&value)));
        }
        Self::Exact(value)
    }

    pub fn real(value: f64) -> Self {
        Self::Float(Complex::real(value))
    }

    pub fn complex(&self) -> Complex {
        match self {
            Self::Exact(value) => Complex::real(to_f64(value)),
            Self::Float(value) => *value,
        }
    }

    pub fn is_finite(&self) -> bool {
        let value = self.complex();
        value.re.is_finite() && value.im.is_finite()
    }

    pub fn plus(&self, other: &Self) -> Self {
        if let (Self::Exact(left), Self::Exact(right)) = (self, other) {
            return Self::exact(left + right);
        }
        let (left, right) = (self.complex(), other.complex());
        Self::Float(Complex::new(left.re + right.re, left.im + right.im))
    }

    pub fn negated(&self) -> Self {
        match self {
            Self::Exact(value) => Self::Exact(-value),
            Self::Float(value) => Self::Float(Complex::new(-value.re, -value.im)),
        }
    }

    pub fn times(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Exact(left), Self::Exact(right)) => Self::exact(left * right),
            _ => Self::Float(self.complex().times(other.complex())),
        }
    }

    /// Not finite when `other` is zero.
    pub fn over(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Exact(left), Self::Exact(right)) if !right.is_zero() => {
                Self::exact(left / right)
            }
            _ => Self::Float(self.complex().times(other.complex().inverse())),
        }
    }

    pub fn power(&self, exponent: &Self) -> Self {
        if let (Self::Exact(base), Self::Exact(power)) = (self, exponent) {
            if power.is_integer()
                && let Some(times) = power.to_integer().to_i32()
                && times.unsigned_abs() as u64 * base.numer().bits().max(base.denom().bits())
                    <= MOST_BITS
                && !(base.is_zero() && times <= 0)
            {
                return Self::exact(base.pow(times));
            }
            if !base.is_negative()
                && !power.is_integer()
                && power.denom() <= &BigInt::from(64)
                && let Some(degree) = power.denom().to_u32()
                && let Some(root) = exact_root(base, degree)
            {
                return Self::Exact(root)
                    .power(&Self::Exact(Rational::from_integer(power.numer().clone())));
            }
        }
        Self::Float(self.complex().power(exponent.complex()))
    }

    /// The principal root; of a negative number and an odd degree the real one.
    pub fn root(&self, degree: &Self) -> Self {
        let inverse = Self::int(1).over(degree);
        if let (Self::Exact(value), Self::Exact(degree)) = (self, degree)
            && value.is_negative()
            && degree.is_integer()
            && degree.numer().bit(0)
        {
            return Self::Exact(-value).power(&inverse).negated();
        }
        self.power(&inverse)
    }

    pub fn magnitude(&self) -> Self {
        match self {
            Self::Exact(value) => Self::Exact(value.abs()),
            Self::Float(value) => Self::real(value.magnitude()),
        }
    }

    /// The whole number below (or above); None of what is not real.
    pub fn floor(&self, is_up: bool) -> Option<Self> {
        match self {
            Self::Exact(value) => Some(Self::Exact(if is_up {
                value.ceil()
            } else {
                value.floor()
            })),
            Self::Float(value) if value.im == 0.0 => Some(Self::real(if is_up {
                value.re.ceil()
            } else {
                value.re.floor()
            })),
            Self::Float(_) => None,
        }
    }

    /// `n!`, up to 500.
    pub fn factorial(&self) -> Option<Self> {
        let count = self.whole().filter(|count| (0..=500).contains(count))?;
        let product = (1..=count).fold(BigInt::one(), |product, factor| product * factor);
        Some(Self::exact(Rational::from_integer(product)))
    }

    /// `n` over `k`, both whole.
    pub fn choose(&self, below: &Self) -> Option<Self> {
        let (all, some) = (self.whole()?, below.whole()?);
        if !(0..=500).contains(&all) || !(0..=all).contains(&some) {
            return None;
        }
        let mut ways = BigInt::one();
        for step in 0..some {
            ways = ways * (all - step) / (step + 1);
        }
        Some(Self::exact(Rational::from_integer(ways)))
    }

    fn whole(&self) -> Option<i64> {
        match self {
            Self::Exact(value) if value.is_integer() => value.to_integer().to_i64(),
            _ => None,
        }
    }

    /// A function of one variable by its name in LaTeX, without the backslash; None: unknown.
    pub fn function(&self, name: &str) -> Option<Self> {
        let value = self.complex();
        // Of i·x, for the circular functions.
        let turned = Complex::new(-value.im, value.re);
        let (up, down) = (turned.exp(), Complex::new(-turned.re, -turned.im).exp());
        let sine = Complex::new((up.im - down.im) / 2.0, -(up.re - down.re) / 2.0);
        let cosine = Complex::new(f64::midpoint(up.re, down.re), f64::midpoint(up.im, down.im));
        let is_real = value.im == 0.0;
        let result = match name {
            "sin" => sine,
            "cos" => cosine,
            "tan" => sine.times(cosine.inverse()),
            "cot" => cosine.times(sine.inverse()),
            "sec" => cosine.inverse(),
            "csc" => sine.inverse(),
            "exp" => value.exp(),
            "ln" => value.ln(),
            // Without a base, `log` is taken for what both sides mean by it.
            "log" => value
                .ln()
                .times(Complex::real(1.0 / std::f64::consts::LN_10)),
            "arcsin" if is_real => Complex::real(value.re.asin()),
            "arccos" if is_real => Complex::real(value.re.acos()),
            "arctan" if is_real => Complex::real(value.re.atan()),
            "sinh" if is_real => Complex::real(value.re.sinh()),
            "cosh" if is_real => Complex::real(value.re.cosh()),
            "tanh" if is_real => Complex::real(value.re.tanh()),
            _ => return None,
        };
        Some(Self::Float(result))
    }

    /// Exact numbers exactly, others within rounding. None when one of them is not finite.
    pub fn equals(&self, other: &Self) -> Option<bool> {
        if let (Self::Exact(left), Self::Exact(right)) = (self, other) {
            return Some(left == right);
        }
        if !self.is_finite() || !other.is_finite() {
            return None;
        }
        let (left, right) = (self.complex(), other.complex());
        let gap = Complex::new(left.re - right.re, left.im - right.im).magnitude();
        let size = left.magnitude().max(right.magnitude());
        Some(gap <= RELATIVE * size || gap <= ABSOLUTE)
    }
}

fn to_f64(value: &Rational) -> f64 {
    // Numbers of thousands of bits are beyond a float; what both have too much of falls away first.
    let surplus = value
        .numer()
        .bits()
        .max(value.denom().bits())
        .saturating_sub(1000);
    let part = |number: &BigInt| (number >> surplus).to_f64().unwrap_or(f64::NAN);
    part(value.numer()) / part(value.denom())
}

/// The root when numerator and denominator are both perfect powers.
fn exact_root(value: &Rational, degree: u32) -> Option<Rational> {
    let root = |number: &BigInt| {
        let root = number.nth_root(degree);
        (root.pow(degree) == *number).then_some(root)
    };
    Some(Rational::new(root(value.numer())?, root(value.denom())?))
}
