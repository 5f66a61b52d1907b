//! A mix of lifetimes, and the stable draw of one for each key.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::mixed::share;

/// Common TTLs of some of Twitter's cache clusters, with their shares (Yang, Yue, Rashmi, OSDI '20;
/// data under CC BY 4.0).
const CLUSTERS: [(&str, &str); 7] = [
    (
        "cluster4",
        "60s:0.39,300s:0.24,1h:0.13,600s:0.12,4h:0.09,1d:0.03",
    ),
    ("cluster12", "300s:0.98,299s:0.02"),
    ("cluster23", "120s:0.93,2700s:0.05,5s:0.03"),
    ("cluster24", "14d:0.71,60s:0.19,30d:0.03,1d:0.02,1h:0.02"),
    (
        "cluster26",
        "60s:0.67,120s:0.10,360s:0.09,600s:0.06,660s:0.03,180s:0.02",
    ),
    (
        "cluster27",
        "92.6d:0.28,1d:0.25,1h:0.20,4h:0.18,6h:0.06,12h:0.02",
    ),
    ("cluster52", "1d:0.65,14d:0.27,12h:0.07"),
];

/// The draw's own stream of the key's hash.
const LIFETIME: u64 = 0x17;

#[derive(Clone, Debug)]
pub(crate) struct Mix {
    name: String,
    list: String,
    /// Lifetimes (`None`: never expires), each with the sum of the shares up to and including it;
    /// the last sum is 1.
    steps: Vec<(Option<Duration>, f64)>,
}

impl Mix {
    /// The lifetime of a key: the same in every run.
    pub(crate) fn lifetime(&self, key: u64) -> Option<Duration> {
        let drawn = share(key, LIFETIME);
        let step = self.steps.partition_point(|&(_, sum)| sum <= drawn);
        // The last sum can be a rounding error below 1.
        self.steps[step.min(self.steps.len() - 1)].0
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.list)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = CLUSTERS
            .iter()
            .find(|(name, _)| *name == text || name.strip_prefix("cluster") == Some(text));
        let (name, list) = known.map_or(("own mix", text), |&(name, list)| (name, list));
        let mut steps = Vec::new();
        let mut sum = 0.0;
        for item in list.split(',').filter(|item| !item.trim().is_empty()) {
            let (lifetime, share) = item.split_once(':').ok_or_else(|| {
                format!("\"{item}\" is neither a known cluster nor LIFETIME:SHARE, like 60s:0.5")
            })?;
            let share: f64 = share
                .trim()
                .parse()
                .ok()
                .filter(|share: &f64| share.is_finite() && *share > 0.0)
                .ok_or_else(|| format!("the share \"{share}\" is not a number above 0"))?;
            sum += share;
            steps.push((lifetime_from(lifetime.trim())?, sum));
        }
        if steps.is_empty() {
            return Err("an empty mix; at least one LIFETIME:SHARE is needed".to_owned());
        }
        // Published shares leave out the rare lifetimes: scale what is there to 1.
        for step in &mut steps {
            step.1 /= sum;
        }
        Ok(Self {
            name: name.to_owned(),
            list: list.to_owned(),
            steps,
        })
    }
}

fn lifetime_from(text: &str) -> Result<Option<Duration>, String> {
    if text == "none" {
        return Ok(None);
    }
    let unit = text.char_indices().last().map_or(0, |(at, _)| at);
    let (number, unit) = text.split_at(unit);
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => {
            return Err(format!(
                "the lifetime \"{text}\" has no unit; s, m, h and d are known, and none for no end"
            ));
        }
    };
    // To the millisecond: 92.6 days are not 8,000,639.999999999 s.
    let rounded = |number: f64| (number * seconds * 1e3).round() / 1e3;
    let lifetime = number
        .parse()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(rounded(number)).ok());
    lifetime.map(Some).ok_or_else(|| {
        format!("the lifetime \"{text}\" is not a number with a unit, like 60s or 1.5h")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n))
    }

    #[test]
    fn every_known_cluster_parses() {
        for (name, _) in CLUSTERS {
            assert!(name.parse::<Mix>().is_ok(), "{name}");
        }
        assert_eq!("4".parse::<Mix>().unwrap().name, "cluster4");
    }

    #[test]
    fn draws_follow_the_shares_and_never_change() {
        let mix: Mix = "cluster4".parse().unwrap();
        let share_of = |lifetime| {
            (0..100_000)
                .filter(|&key| mix.lifetime(key) == lifetime)
                .count() as f64
                / 100_000.0
        };
        assert!((share_of(seconds(60)) - 0.39).abs() < 0.01);
        assert!((share_of(seconds(300)) - 0.24).abs() < 0.01);
        assert!((share_of(seconds(86_400)) - 0.03).abs() < 0.01);
        // Pinned: a change here changes every published figure.
        let first: Vec<_> = (1..=5).map(|key| mix.lifetime(key)).collect();
        assert_eq!(first, [300, 3600, 300, 14_400, 3600].map(seconds));
    }

    #[test]
    fn units_and_none() {
        assert_eq!(lifetime_from("1.5h"), Ok(seconds(5400)));
        assert_eq!(lifetime_from("92.6d"), Ok(seconds(8_000_640)));
        assert_eq!(lifetime_from("2m"), Ok(seconds(120)));
        let mix: Mix = "none:1".parse().unwrap();
        assert_eq!(mix.lifetime(3), None);
    }

    #[test]
    fn refusals_name_the_part() {
        for (text, part) in [
            ("60", "60"),
            ("60s:x", "x"),
            ("60:1", "unit"),
            ("", "empty"),
            ("-5s:1", "-5s"),
            ("60s:0", "0"),
        ] {
            let message = text.parse::<Mix>().unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
