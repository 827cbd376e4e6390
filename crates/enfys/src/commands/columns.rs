//! Names in columns, as `ls` prints them on a terminal.

use unicode_width::UnicodeWidthStr;

/// Spaces between columns.
const GAP: usize = 2;

/// Prints words top to bottom in as many columns as fit into `width`; lines end with a newline.
pub fn columns(words: &[String], width: usize) -> String {
    let widths: Vec<usize> = words.iter().map(|word| word.width()).collect();
    let rows = (1..=words.len()).find(|rows| total(&widths, *rows) <= width).unwrap_or(words.len());
    let mut text = String::new();
    for row in 0..rows {
        let mut row = (row..words.len()).step_by(rows).peekable();
        let mut column = 0;
        while let Some(index) = row.next() {
            text.push_str(&words[index]);
            if row.peek().is_some() {
                let padding = column_width(&widths, rows, column) + GAP - widths[index];
                text.extend(std::iter::repeat_n(' ', padding));
            }
            column += 1;
        }
        text.push('\n');
    }
    text
}

/// Returns the width of all columns of this many rows.
fn total(widths: &[usize], rows: usize) -> usize {
    let columns = widths.len().div_ceil(rows);
    (0..columns).map(|column| column_width(widths, rows, column)).sum::<usize>() + (columns - 1) * GAP
}

fn column_width(widths: &[usize], rows: usize, column: usize) -> usize {
    widths.iter().skip(column * rows).take(rows).copied().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(words: &str, width: usize) -> String {
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        columns(&words, width)
    }

    #[test]
    fn columns_fill_the_width_from_top_to_bottom() {
        assert_eq!(printed("a bb ccc dddd e", 80), "a  bb  ccc  dddd  e\n");
        assert_eq!(printed("a bb ccc dddd e", 14), "a   ccc   e\nbb  dddd\n");
        assert_eq!(printed("a bb ccc dddd e", 11), "a   ccc   e\nbb  dddd\n");
        assert_eq!(printed("a bb ccc dddd e", 9), "a    dddd\nbb   e\nccc\n");
    }

    #[test]
    fn a_long_word_has_a_line() {
        assert_eq!(printed("aaaaaaaaaa b", 5), "aaaaaaaaaa\nb\n");
        assert_eq!(columns(&[], 80), "");
    }

    #[test]
    fn wide_characters_take_two_places() {
        assert_eq!(printed("漢字 b c d", 9), "漢字  c\nb     d\n");
    }
}
