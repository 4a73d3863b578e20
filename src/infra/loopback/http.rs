//! As much of HTTP/1.1 as the CLIs use: requests with a length or in chunks, JSON and event streams.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

/// No request of a CLI is larger.
const MAX_BODY_BYTES: u64 = 64 * 1024 * 1024;

/// No line of a head is longer.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    /// The verb.
    pub method: String,
    /// The path with its query.
    pub path: String,
    headers: Vec<(String, String)>,
    /// The body as JSON; null when it is none.
    pub body: Value,
}

impl Request {
    /// A header's value; the name in lower case.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// Whether a login came along, of either API.
    pub(super) fn has_login(&self) -> bool {
        self.header("authorization").is_some() || self.header("x-api-key").is_some()
    }

    /// Whether the caller wants no more than this one answer.
    pub(super) fn wants_close(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// A text member of the body.
    pub(super) fn text(&self, pointer: &str) -> Option<String> {
        self.body.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Reads the next request of a connection; `None` when the other side has closed it.
///
/// # Errors
///
/// When the connection breaks, or what comes is no HTTP.
pub(super) fn read_request(reader: &mut impl BufRead, mut back: &TcpStream) -> io::Result<Option<Request>> {
    let Some(first) = read_line(reader)? else { return Ok(None) };
    let mut words = first.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Err(bad("no request line")) };
    let mut headers = Vec::new();
    while let Some(line) = read_line(reader)?.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header without a colon"))?;
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    if header(&headers, "expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        back.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let raw = read_body(reader, &headers)?;
    let body = serde_json::from_slice(&raw).unwrap_or(Value::Null);
    Ok(Some(Request { method: method.to_owned(), path: path.to_owned(), headers, body }))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    if reader.take(MAX_LINE_BYTES).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

fn read_body(reader: &mut impl BufRead, headers: &[(String, String)]) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if header(headers, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        loop {
            let line = read_line(reader)?.ok_or_else(|| bad("a chunk without its length"))?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16).map_err(|_| bad("a chunk without its length"))?;
            take(reader, size, &mut body)?;
            read_line(reader)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    let length = header(headers, "content-length").map_or(Ok(0), str::parse).map_err(|_| bad("no length"))?;
    take(reader, length, &mut body)?;
    Ok(body)
}

fn take(reader: &mut impl BufRead, size: u64, body: &mut Vec<u8>) -> io::Result<()> {
    if size.saturating_add(body.len() as u64) > MAX_BODY_BYTES {
        return Err(bad("the body is too large"));
    }
    let read = reader.take(size).read_to_end(body)?;
    if (read as u64) < size { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// The way back to the caller.
pub(super) struct Answer<'a> {
    stream: &'a TcpStream,
}

impl<'a> Answer<'a> {
    pub(super) const fn new(stream: &'a TcpStream) -> Self {
        Self { stream }
    }

    /// Answers with a JSON body; the connection goes on.
    pub(super) fn json(&mut self, status: u16, headers: &[(&str, String)], body: &Value) -> io::Result<bool> {
        let body = body.to_string();
        let mut head = self.head(status, "application/json", headers);
        let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
        self.stream.write_all(head.as_bytes())?;
        self.stream.write_all(body.as_bytes())?;
        Ok(true)
    }

    /// Opens a stream of events, which ends with the connection.
    pub(super) fn open_events(&mut self) -> io::Result<()> {
        let head = self.head(200, "text/event-stream; charset=utf-8", &[]);
        self.stream.write_all(format!("{head}cache-control: no-cache\r\nconnection: close\r\n\r\n").as_bytes())
    }

    /// Sends one event, named by its `type`.
    pub(super) fn event(&mut self, event: &Value) -> io::Result<()> {
        let name = event.get("type").and_then(Value::as_str).unwrap_or("message");
        self.stream.write_all(format!("event: {name}\ndata: {event}\n\n").as_bytes())
    }

    fn head(&self, status: u16, kind: &str, headers: &[(&str, String)]) -> String {
        let reason = match status {
            200 => "OK",
            401 => "Unauthorized",
            404 => "Not Found",
            429 => "Too Many Requests",
            _ => "Internal Server Error",
        };
        let mut head = format!("HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\nrequest-id: req_loopback\r\n");
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn read(text: &str) -> io::Result<Option<Request>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let back = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        read_request(&mut text.as_bytes(), &back)
    }

    #[test]
    fn both_kinds_of_body_are_read() {
        let by_length =
            read("POST /a?b HTTP/1.1\r\nContent-Length: 7\r\nX-Api-Key: k\r\n\r\n{\"a\":1}").unwrap().unwrap();
        assert_eq!((by_length.method.as_str(), by_length.path.as_str()), ("POST", "/a?b"));
        assert_eq!(by_length.body["a"], 1);
        assert!(by_length.has_login());
        let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\n4;x=y\r\n\":1}\r\n0\r\n\r\n";
        assert_eq!(read(chunked).unwrap().unwrap().body["a"], 1);
    }

    #[test]
    fn the_end_is_no_error_and_nonsense_is() {
        assert!(read("").unwrap().is_none());
        assert!(read("\r\n").is_err());
        assert!(read("POST / HTTP/1.1\r\nno colon\r\n\r\n").is_err());
        assert!(read("POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nshort").is_err());
        assert!(read("POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n").is_err());
        assert!(read("GET / HTTP/1.1\r\n\r\n").unwrap().unwrap().body.is_null());
    }
}
