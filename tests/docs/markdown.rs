//! What a Markdown text names, with line numbers.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

pub struct Item {
    pub line: usize,
    pub kind: Kind,
}

pub enum Kind {
    /// Inline code.
    Code(String),
    /// One command of a fenced block, continuation lines joined.
    Command(String),
    Link(String),
    Image {
        target: String,
        alt: String,
    },
    /// A heading as the anchor that GitHub makes of it.
    Heading(String),
}

pub fn items(text: &str) -> Vec<Item> {
    let mut found = Vec::new();
    let mut heading: Option<String> = None;
    let mut image: Option<(String, String)> = None;
    let mut fence: Option<String> = None;
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        let line = line_of(text, range.start);
        let mut push = |kind| found.push(Item { line, kind });
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                push(Kind::Heading(anchor(&heading.take().unwrap_or_default())));
            }
            Event::Start(Tag::Link { dest_url, .. }) => push(Kind::Link(dest_url.to_string())),
            Event::Start(Tag::Image { dest_url, .. }) => {
                image = Some((dest_url.to_string(), String::new()));
            }
            Event::End(TagEnd::Image) => {
                if let Some((target, alt)) = image.take() {
                    push(Kind::Image { target, alt });
                }
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(mark))) => {
                fence = Some(mark.to_string());
            }
            Event::End(TagEnd::CodeBlock) => fence = None,
            Event::Code(code) => {
                if let Some(title) = &mut heading {
                    title.push_str(&code);
                }
                push(Kind::Code(code.to_string()));
            }
            Event::Text(words) => {
                if let Some(mark) = &fence {
                    for (below, command) in commands(mark, &words) {
                        found.push(Item {
                            line: line + below,
                            kind: Kind::Command(command),
                        });
                    }
                }
                if let Some(title) = &mut heading {
                    title.push_str(&words);
                }
                if let Some((_, alt)) = &mut image {
                    alt.push_str(&words);
                }
            }
            _ => {}
        }
    }
    found
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Commands of a fenced block with their line in it.
fn commands(mark: &str, block: &str) -> Vec<(usize, String)> {
    let language = mark.split([' ', ',']).next().unwrap_or_default();
    let prompt = match language {
        "sh" | "bash" | "shell" => "",
        "console" => "$ ",
        _ => return Vec::new(),
    };
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut continued = false;
    for (number, line) in block.lines().enumerate() {
        let part = line.trim_end().trim_end_matches('\\').trim();
        match found.last_mut() {
            Some((_, command)) if continued => *command += &format!(" {part}"),
            _ => match part.strip_prefix(prompt) {
                Some("") | None => continue,
                Some(command) => found.push((number, command.to_owned())),
            },
        }
        continued = line.trim_end().ends_with('\\');
    }
    found
}

/// GitHub's anchor: lower case, spaces to dashes, other punctuation dropped.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

/// Every `KERNELGATE_...` of the text, with its line.
pub fn variables(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("KERNELGATE_").map(|(at, _)| {
        let rest = &text[at..];
        let end = rest
            .find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_')
            .unwrap_or(rest.len());
        (line_of(text, at), &rest[..end])
    })
}
