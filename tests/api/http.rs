//! A request in; the answer's status, fields and body, or its events, out. It knows no library, so that a test says what
//! is on the wire.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::support::PATIENCE;

/// A connection.
pub struct Http {
    reader: BufReader<Box<dyn Stream>>,
}

pub trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.head.iter().find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?} {}", self, String::from_utf8_lossy(&self.body)))
    }

    /// The problem that it is, with this status and outcome.
    #[track_caller]
    pub fn problem(&self, status: u16, outcome: &str) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.field("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["outcome"], outcome, "{problem}");
        assert_eq!(problem["status"], status);
        for key in ["type", "title", "detail", "retry"] {
            assert!(problem[key].is_string(), "{key}: {problem}");
        }
        assert!(problem["code"].is_u64(), "{problem}");
        problem
    }
}

impl Http {
    pub fn unix(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }

    pub fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::over(stream)
    }

    fn over(stream: impl Stream + 'static) -> Self {
        Self { reader: BufReader::new(Box::new(stream)) }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let stream = self.reader.get_mut();
        stream.write_all(bytes)?;
        stream.flush()
    }

    /// Sends a request with a body of JSON, where there is one.
    pub fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: Option<&str>) {
        self.send(&request(method, path, fields, body)).unwrap();
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, &[], None);
        self.answer()
    }

    pub fn post(&mut self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, &[], Some(body));
        self.answer()
    }

    pub fn post_with(&mut self, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        self.ask("POST", path, fields, Some(body));
        self.answer()
    }

    /// The whole answer.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if answer.field("transfer-encoding").is_some() {
            while let Some(chunk) = self.chunk() {
                answer.body.extend(chunk);
            }
        } else if let Some(length) = answer.field("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut body).unwrap();
            answer.body = body;
        }
        answer
    }

    /// Posts on a connection of its own. **Errors:** nobody is there, or the answer breaks off.
    pub fn try_post(
        socket: &Path,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> std::io::Result<Answer> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut http = Self::over(stream);
        http.send(&request("POST", path, fields, Some(body)))?;
        let mut line = String::new();
        let (mut status, mut length) = (0, 0);
        loop {
            line.clear();
            if http.reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let text = line.trim_end();
            if let Some(rest) = text.strip_prefix("HTTP/1.1 ") {
                status = rest.split(' ').next().unwrap_or_default().parse().unwrap();
            } else if let Some(rest) = text.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if text.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        http.reader.read_exact(&mut body)?;
        Ok(Answer { status, head: Vec::new(), body })
    }

    /// The answer's head alone.
    #[track_caller]
    pub fn head(&mut self) -> Answer {
        let line = self.line().expect("an answer comes");
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        let mut head = Vec::new();
        loop {
            let line = self.line().expect("a head ends with an empty line");
            if line.is_empty() {
                return Answer { status, head, body: Vec::new() };
            }
            let (name, value) = line.split_once(':').unwrap();
            head.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    /// Whether the other side has closed the connection, having said nothing more.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.reader.fill_buf(), Ok([]) | Err(_))
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end_matches(['\r', '\n']).to_owned()),
        }
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(&self.line()?, 16).unwrap();
        let mut chunk = vec![0; length];
        self.reader.read_exact(&mut chunk).unwrap();
        self.line()?;
        (length > 0).then_some(chunk)
    }

    /// Reads the events that the answer consists of from here on.
    pub fn events(self) -> Events {
        Events { http: self, text: String::new() }
    }
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, fields: &[(&str, &str)], body: Option<&str>) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    let has = |name: &str| fields.iter().any(|(found, _)| found.eq_ignore_ascii_case(name));
    if !has("host") {
        text += "Host: localhost\r\n";
    }
    if body.is_some() && !has("content-type") {
        text += "Content-Type: application/json\r\n";
    }
    for (name, value) in fields {
        text += &format!("{name}: {value}\r\n");
    }
    if let Some(body) = body {
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    } else {
        text += "\r\n";
    }
    text.into_bytes()
}

/// Events of a `text/event-stream`.
pub struct Events {
    http: Http,
    text: String,
}

/// One of them.
#[derive(Debug)]
pub struct Event {
    pub id: Option<String>,
    pub name: String,
    pub data: Value,
}

impl Events {
    /// The next one; `None` at the end.
    pub fn next(&mut self) -> Option<Event> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    line.map(str::to_owned)
                };
                // A comment is no event.
                let event = field("event").map(|name| Event {
                    id: field("id"),
                    name,
                    data: serde_json::from_str(&field("data").unwrap()).unwrap(),
                });
                self.text = rest.to_owned();
                if event.is_some() {
                    return event;
                }
            }
            let chunk = self.http.chunk()?;
            self.text += std::str::from_utf8(&chunk).unwrap();
        }
    }

    /// The next one, which has this name.
    #[track_caller]
    pub fn expect(&mut self, name: &str) -> Event {
        let event = self.next().unwrap_or_else(|| panic!("the stream ended before {name:?}"));
        assert_eq!(event.name, name, "{event:?}");
        event
    }

    /// All that come, to the end.
    pub fn rest(mut self) -> Vec<Event> {
        std::iter::from_fn(move || self.next()).collect()
    }
}
