//! Numbers and lines of text in, read as two queries, a position and a cursor that somebody made up; the claims that a
//! sealed cursor opens for the query that it was sealed for, and that no other does.

use capd_proto::message::{Cursor, CursorContext, CursorError, Order, Question};

pub(crate) fn run(bytes: &[u8]) {
    let Some((&[choices, at, other_byte], rest)) = bytes.split_first_chunk::<3>() else { return };
    let Some((position, rest)) = rest.split_first_chunk::<8>() else { return };
    let Some((snapshot, rest)) = rest.split_first_chunk::<8>() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let (position, snapshot) = (u64::from_be_bytes(*position), u64::from_be_bytes(*snapshot));
    let mut lines = text.split('\n');
    let mut line = || lines.next().unwrap_or_default();
    let asked = [1, 2].map(|bit| (line(), question(line(), line(), choices & bit != 0)));
    let [context, other] =
        asked.each_ref().map(|(holder, question)| CursorContext { holder, question, snapshot });
    let key = [choices; 32];

    let sealed = Cursor::seal(&key, &context, position);
    assert_eq!(Cursor::open(&key, &context, &sealed), Ok(position));
    // Whoever asks for the same may go on, nobody else, and nobody once something has changed.
    let is_same = asked[0] == asked[1];
    let opened = Cursor::open(&key, &other, &sealed);
    assert_eq!(opened, if is_same { Ok(position) } else { Err(CursorError::NotOurs) }, "{asked:?}");
    let later = CursorContext { snapshot: snapshot.wrapping_add(1), ..context };
    assert_eq!(Cursor::open(&key, &later, &sealed), Err(CursorError::Stale));
    assert_eq!(Cursor::open(&[!choices; 32], &context, &sealed), Err(CursorError::NotOurs));

    // A cursor is one text and no other, not even one that decodes to the same bytes.
    for tried in
        [made_up(&sealed, at, other_byte), sealed[1..].to_owned(), format!("{sealed}A"), line().to_owned()]
    {
        let opened = Cursor::open(&key, &context, &tried);
        assert_eq!(
            opened,
            if tried == sealed { Ok(position) } else { Err(CursorError::NotOurs) },
            "{tried:?}"
        );
    }
}

/// The cursor with one of its characters replaced.
fn made_up(sealed: &str, at: u8, other: u8) -> String {
    let at = usize::from(at) % sealed.len();
    let replaced = |(index, c)| if index == at { char::from(other) } else { c };
    sealed.chars().enumerate().map(replaced).collect()
}

/// What is asked; a text that is no pattern asks for everything, one that is no range for every version.
fn question(pattern: &str, range: &str, is_oldest_first: bool) -> Question {
    let all = "*".parse().expect("it is a pattern");
    Question {
        pattern: pattern.parse().unwrap_or(all),
        range: range.parse().ok(),
        words: String::new(),
        limit: 1,
        order: if is_oldest_first { Order::OldestFirst } else { Order::NewestFirst },
    }
}
