//! The progress bar: by bytes of the file, which are known, and not by requests, which are not.

use std::fs;
use std::io::Read;
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

pub(crate) struct Progress {
    bar: ProgressBar,
    counts_requests: bool,
}

impl Progress {
    pub(crate) fn of_file(name: &str, file: &Path) -> Result<Self, String> {
        let length = fs::metadata(file)
            .map_err(|error| format!("cannot be read: {error}"))?
            .len();
        Ok(Self {
            bar: bar(name, length, "{bytes}/{total_bytes}"),
            counts_requests: false,
        })
    }

    pub(crate) fn of_requests(name: &str, count: u64) -> Self {
        Self {
            bar: bar(name, count, "{human_pos}/{human_len}"),
            counts_requests: true,
        }
    }

    /// The file, with the bar following what is read of it.
    pub(crate) fn watch(&self, file: fs::File) -> impl Read + use<> {
        self.bar.wrap_read(file)
    }

    pub(crate) fn played(&self, count: usize, per_second: f64) {
        if self.counts_requests {
            self.bar.inc(count as u64);
        }
        self.bar
            .set_message(format!("{:.2} M requests/s", per_second / 1e6));
    }
}

impl Drop for Progress {
    /// Makes room for the row of results, or for the error.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn bar(name: &str, length: u64, position: &str) -> ProgressBar {
    let template = format!("{{prefix:>24}} {{wide_bar}} {position}  {{msg}}");
    // A template of our own that does not parse is a mistake in this file; the plain bar serves as
    // well.
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length)
        .with_style(style)
        .with_prefix(name.to_owned())
}
