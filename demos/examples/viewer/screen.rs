//! The terminal: an alternate screen that is left again however the program ends, and the keys.

use std::io::{Stdout, Write, stdout};
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, poll, read};
use crossterm::style::Print;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};

pub(crate) struct Screen(Stdout);

pub(crate) enum Key {
    Quit,
    Faster,
    Slower,
    Pause,
}

impl Screen {
    pub(crate) fn open() -> std::io::Result<Self> {
        enable_raw_mode()?;
        let mut screen = Self(stdout());
        execute!(screen.0, EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Draws over the last frame. The bottom of the screen belongs to `keys`, in as many rows as
    /// they need; what does not fit above them is cut off.
    pub(crate) fn draw(&mut self, lines: &[String], keys: &[&str]) -> std::io::Result<()> {
        // A terminal that does not know its size says zero.
        let (columns, rows) = match size()? {
            (0, _) | (_, 0) => (80, 24),
            known => known,
        };
        let keys = wrapped(keys, columns.into());
        let above = usize::from(rows).saturating_sub(keys.len());
        let shown = lines.iter().take(above).chain(&keys);
        for (row, line) in (0..rows).zip(shown) {
            let fitting: String = line.chars().take(columns.into()).collect();
            queue!(
                self.0,
                MoveTo(0, row),
                Print(fitting),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        queue!(self.0, Clear(ClearType::FromCursorDown))?;
        self.0.flush()
    }

    /// Waits for the whole time, or until a known key is pressed.
    pub(crate) fn key_within(&mut self, limit: Duration) -> std::io::Result<Option<Key>> {
        let end = Instant::now() + limit;
        while poll(end.saturating_duration_since(Instant::now()))? {
            if let Event::Key(KeyEvent {
                code,
                modifiers,
                kind: KeyEventKind::Press,
                ..
            }) = read()?
            {
                match code {
                    KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => {
                        return Ok(Some(Key::Quit));
                    }
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(Some(Key::Quit)),
                    KeyCode::Char('+' | '=') => return Ok(Some(Key::Faster)),
                    KeyCode::Char('-') => return Ok(Some(Key::Slower)),
                    KeyCode::Char(' ') => return Ok(Some(Key::Pause)),
                    _ => {}
                }
            }
        }
        Ok(None)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that takes no orders any more.
        _ = execute!(self.0, Show, LeaveAlternateScreen);
        _ = disable_raw_mode();
    }
}

/// The words in rows of at most this many columns, three blanks between two words.
fn wrapped(words: &[&str], columns: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in words {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 3 + word.chars().count() <= columns => {
                row.push_str("   ");
                row.push_str(word);
            }
            _ => rows.push((*word).to_owned()),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_wrapped_and_none_is_lost() {
        let keys = ["q quit", "space pause", "+ faster"];
        assert_eq!(wrapped(&keys, 80), ["q quit   space pause   + faster"]);
        assert_eq!(wrapped(&keys, 22), ["q quit   space pause", "+ faster"]);
        assert_eq!(wrapped(&keys, 4), keys);
    }
}
