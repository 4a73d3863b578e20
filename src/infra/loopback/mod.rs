//! A server on 127.0.0.1 that plays the model of both CLIs from a script.
//!
//! It speaks as much of the OpenAI Responses API and of the Anthropic Messages API as the real
//! `codex` and `claude` need, so that `lane demo --worker codex|claude` and the tests run the real
//! programs with no login, no network and no quota. It is plain HTTP/1.1 on the standard library:
//! a script must be able to cut a connection in the middle, which HTTP libraries do not offer.

mod http;
mod messages;
mod responses;
mod script;

use std::io::{self, BufReader};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub use script::{Script, SeenRequest, Step};

/// A running server. It stops, and cuts every connection, when it is dropped.
pub struct LoopbackServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    script: Script,
    next_step: usize,
    requests: Vec<SeenRequest>,
    connections: Vec<TcpStream>,
    stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request to the model and returns the step that answers it; the last one repeats.
    fn take_step(&self, seen: SeenRequest) -> Step {
        let mut state = self.lock();
        state.requests.push(seen);
        let at = state.next_step.min(state.script.steps.len().saturating_sub(1));
        state.next_step += 1;
        state.script.steps.get(at).cloned().unwrap_or_else(|| Step::Say("The script is empty.".to_owned()))
    }

    /// Sleeps until the server stops.
    fn wait_for_stop(&self) {
        let mut state = self.lock();
        while !state.stopping {
            state = self.stopped.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl LoopbackServer {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// When no socket can be had.
    pub fn start(script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Mutex::new(State { script, ..State::default() });
        let shared = Arc::new(Shared { state, stopped: Condvar::new() });
        let for_acceptor = Arc::clone(&shared);
        let acceptor =
            std::thread::Builder::new().name("loopback".to_owned()).spawn(move || accept(&listener, &for_acceptor))?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What `[providers.openai] base_url` takes.
    pub fn openai_base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What `[providers.claude] base_url` takes.
    pub fn claude_base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests to the model so far, in order.
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.shared.lock().requests.clone()
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        let connections = {
            let mut state = self.shared.lock();
            state.stopping = true;
            std::mem::take(&mut state.connections)
        };
        self.shared.stopped.notify_all();
        for connection in connections {
            let _ = connection.shutdown(Shutdown::Both);
        }
        // The acceptor sleeps in `accept`; one more connection wakes it up.
        if TcpStream::connect(self.address).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let mut state = shared.lock();
        if state.stopping {
            return;
        }
        let Ok(stream) = stream else { continue };
        if let Ok(kept) = stream.try_clone() {
            state.connections.push(kept);
        }
        drop(state);
        let shared = Arc::clone(shared);
        // A connection that cannot be served is closed by the drop of its stream.
        let _ = std::thread::Builder::new().spawn(move || {
            let _ = serve(&stream, &shared);
            let _ = stream.shutdown(Shutdown::Both);
        });
    }
}

/// Answers the requests of one connection until either side closes it.
fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = http::read_request(&mut reader, stream)? {
        let mut answer = http::Answer::new(stream);
        let path = request.path.split('?').next().unwrap_or_default();
        let goes_on = match (request.method.as_str(), path) {
            ("POST", path) if path.ends_with("/responses") => responses::answer(&request, shared, &mut answer)?,
            ("POST", path) if path.ends_with("/messages/count_tokens") => messages::count(&request, &mut answer)?,
            ("POST", path) if path.ends_with("/messages") => messages::answer(&request, shared, &mut answer)?,
            _ => answer.json(404, &[], &serde_json::json!({"error": {"message": "no such route"}}))?,
        };
        if !goes_on || request.wants_close() {
            break;
        }
    }
    Ok(())
}

/// Whether the connection can take another request.
type GoesOn = bool;

/// The answers that do not depend on the API: `None` when the API must put the step in its own words.
fn common(step: &Step, shared: &Shared, answer: &mut http::Answer<'_>) -> io::Result<Option<GoesOn>> {
    match step {
        Step::Silence => {
            shared.wait_for_stop();
            Ok(Some(false))
        }
        Step::ServerError => {
            let body =
                serde_json::json!({"type": "error", "error": {"type": "api_error", "message": "the script says so"}});
            answer.json(500, &[], &body).map(Some)
        }
        Step::Say(_)
        | Step::Shell(_)
        | Step::Tool { .. }
        | Step::UsageLimit { .. }
        | Step::RateLimited
        | Step::LoginRefused
        | Step::Cut(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use serde_json::{Value, json};

    use super::*;

    fn post(server: &LoopbackServer, path: &str, body: &Value) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let body = body.to_string();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer dummy\r\nconnection: close\r\n");
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn responses_body() -> Value {
        json!({"model": "m", "stream": true, "reasoning": {"effort": "low"},
            "tools": [{"type": "function", "name": "exec_command"}],
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "do it"}]},
                {"type": "function_call_output", "call_id": "c", "output": "done that"}]})
    }

    fn messages_body(stream: bool) -> Value {
        json!({"model": "m", "stream": stream, "max_tokens": 10, "tools": [{"name": "Bash"}],
            "output_config": {"effort": "low"},
            "messages": [{"role": "user", "content": [{"type": "text", "text": "do it"},
                {"type": "tool_result", "tool_use_id": "t", "content": "done that"}]}]})
    }

    #[test]
    fn responses_are_streamed_and_the_last_step_repeats() {
        let server = LoopbackServer::start(Script::new([Step::Shell("ls".into()), Step::Say("hello".into())])).unwrap();
        let first = post(&server, "/v1/responses", &responses_body());
        assert!(first.contains("\"name\":\"exec_command\"") && first.contains("response.completed"), "{first}");
        for _ in 0..2 {
            assert!(post(&server, "/v1/responses", &responses_body()).contains("hello"));
        }
        let seen = server.requests();
        assert_eq!(seen.len(), 3);
        assert_eq!((seen[0].model.as_deref(), seen[0].effort.as_deref()), (Some("m"), Some("low")));
        assert_eq!(
            (seen[0].prompt.as_str(), seen[0].tool_outputs.as_slice()),
            ("do it", ["done that".to_owned()].as_slice())
        );
        assert!(seen[0].has_login);
    }

    #[test]
    fn code_mode_gets_its_own_tool() {
        let server = LoopbackServer::start(Script::new([Step::Shell("ls".into())])).unwrap();
        let body = json!({"model": "m", "input": [{"type": "additional_tools", "tools": [{"type": "custom", "name": "exec"}]}]});
        let text = post(&server, "/v1/responses", &body);
        assert!(text.contains("custom_tool_call") && text.contains("tools.exec_command"), "{text}");
    }

    #[test]
    fn messages_come_streamed_and_whole() {
        let server = LoopbackServer::start(Script::new([Step::Shell("ls".into())])).unwrap();
        let streamed = post(&server, "/v1/messages?beta=true", &messages_body(true));
        assert!(streamed.contains("event: message_stop") && streamed.contains("input_json_delta"), "{streamed}");
        let whole = post(&server, "/v1/messages", &messages_body(false));
        assert!(whole.contains("\"tool_use\"") && !whole.contains("event:"), "{whole}");
        assert_eq!(server.requests()[0].tool_outputs, ["done that"]);
    }

    #[test]
    fn side_traffic_uses_no_step() {
        let server = LoopbackServer::start(Script::new([Step::LoginRefused])).unwrap();
        let body = json!({"model": "m", "max_tokens": 1, "messages": []});
        assert!(post(&server, "/v1/messages", &body).starts_with("HTTP/1.1 200"));
        assert!(post(&server, "/v1/messages/count_tokens", &body).contains("input_tokens"));
        assert!(post(&server, "/v1/other", &body).starts_with("HTTP/1.1 404"));
        assert!(server.requests().is_empty());
    }

    #[test]
    fn failures_have_their_shapes() {
        let steps =
            [Step::UsageLimit { resets_at: 1_893_456_000 }, Step::LoginRefused, Step::ServerError, Step::RateLimited];
        let codex = LoopbackServer::start(Script::new(steps.clone())).unwrap();
        let claude = LoopbackServer::start(Script::new(steps)).unwrap();
        for status in [429, 401, 500, 429] {
            let answer = post(&codex, "/v1/responses", &responses_body());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            let answer = post(&claude, "/v1/messages", &messages_body(true));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }

    #[test]
    fn a_cut_stream_has_no_end() {
        let server = LoopbackServer::start(Script::new([Step::Cut("half".into())])).unwrap();
        let text = post(&server, "/v1/responses", &responses_body());
        assert!(text.contains("half") && !text.contains("response.completed"));
        let text = post(&server, "/v1/messages", &messages_body(true));
        assert!(text.contains("message_start") && !text.contains("message_stop"));
        assert_eq!(post(&server, "/v1/messages", &messages_body(false)), "");
    }

    #[test]
    fn a_drop_ends_silence() {
        let server = LoopbackServer::start(Script::new([Step::Silence])).unwrap();
        let mut stream = TcpStream::connect(server.address()).unwrap();
        write!(stream, "POST /v1/responses HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}").unwrap();
        while server.requests().is_empty() {
            std::thread::yield_now();
        }
        drop(server);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        assert_eq!(text, "");
    }
}
