//! The lines that are printed, and figures of many samples.

/// What a figure has to be.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
    Between(f64, f64),
    /// For comparison alone.
    None,
}

#[derive(Debug, Default)]
pub struct Report {
    missed: u32,
}

impl Report {
    pub fn is_met(&self) -> bool {
        self.missed == 0
    }

    /// One line; `unit` stands behind the figure and the target, `spread` at the end.
    pub fn line(&mut self, text: &str, figure: f64, unit: &str, target: Target, spread: &str) {
        let (wanted, is_met) = match target {
            Target::AtMost(most) => (format!("target: at most {}", number(most)), figure <= most),
            Target::AtLeast(least) => (format!("target: at least {}", number(least)), figure >= least),
            Target::Between(least, most) => {
                (format!("target: {} to {}", number(least), number(most)), (least..=most).contains(&figure))
            }
            Target::None => (String::new(), true),
        };
        let word = match target {
            Target::None => "",
            _ if is_met => "met",
            _ => "MISSED",
        };
        self.missed += u32::from(!is_met);
        println!("{text:<66} {:>9} {unit:<6} {wanted:<24} {word:<6} {spread}", number(figure));
    }
}

/// Three digits that matter.
fn number(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 || figure == figure.trunc() => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

/// Samples in order; there is at least one.
#[derive(Clone, Debug)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn new(mut samples: Vec<f64>) -> Samples {
        assert!(!samples.is_empty(), "nothing was measured");
        samples.sort_by(f64::total_cmp);
        Samples(samples)
    }

    /// The sample below which so many of a hundred lie.
    pub fn percentile(&self, percent: usize) -> f64 {
        self.permille(10 * percent)
    }

    pub fn permille(&self, permille: usize) -> f64 {
        self.0[((self.0.len() * permille).div_ceil(1_000)).clamp(1, self.0.len()) - 1]
    }

    pub fn median(&self) -> f64 {
        self.percentile(50)
    }

    pub fn most(&self) -> f64 {
        self.percentile(100)
    }

    pub fn spread(&self) -> String {
        let [least, median, most] = [0, 50, 100].map(|percent| number(self.percentile(percent)));
        format!("{} samples: {least}, median {median}, to {most}", self.0.len())
    }
}

/// Jain's index of fairness: 1 when all have the same, 1/n when one has all.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}
