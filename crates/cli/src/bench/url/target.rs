//! The service behind a URL, over one connection of HTTP/1.1 for each caller.

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{Answer, Service, Wait};

/// What stands for a caller's number, in the URL and in headers.
pub const CALLER: &str = "{caller}";

/// A request as the command line describes it.
#[derive(Clone, Debug)]
pub struct Template {
    /// Where to; `{caller}` in it is replaced by each caller's number.
    pub url: String,
    /// `Name: value`, likewise.
    pub headers: Vec<String>,
    /// The method.
    pub method: Method,
    /// The body.
    pub body: String,
}

impl Template {
    /// Whether callers can be told apart by it.
    pub fn tells_callers_apart(&self) -> bool {
        std::iter::once(&self.url).chain(&self.headers).any(|text| text.contains(CALLER))
    }

    /// The request of one caller.
    ///
    /// # Errors
    /// What is wrong with the URL or a header.
    pub fn of(&self, caller: usize) -> Result<Target, String> {
        let fill = |text: &str| text.replace(CALLER, &caller.to_string());
        let url = fill(&self.url);
        let uri: Uri = url.parse().map_err(|error| format!("--url {url}: {error}"))?;
        if uri.scheme_str() != Some("http") {
            return Err(format!("--url {url}: only http:// is spoken, as in http://127.0.0.1:8080/"));
        }
        let authority = uri.authority().ok_or_else(|| format!("--url {url}: it names no host"))?;
        let host = HeaderValue::from_str(authority.as_str()).map_err(|error| format!("--url {url}: {error}"))?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host);
        for line in self.headers.iter().map(|line| fill(line)) {
            let (name, value) = header(&line)?;
            if name == HOST {
                headers.insert(name, value);
            } else {
                headers.append(name, value);
            }
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let port = authority.port_u16().unwrap_or(80);
        let address = format!("{}:{port}", authority.host());
        let path = path.parse().map_err(|error| format!("--url {url}: {error}"))?;
        let body = Bytes::from(self.body.clone());
        Ok(Target { address, path, method: self.method.clone(), headers, body, connection: None })
    }
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = |why: &str| format!("--header {line:?}: {why}; write 'Name: value'");
    let (name, value) = line.split_once(':').ok_or_else(|| wrong("it has no colon"))?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong("that cannot be a name"))?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong("that cannot be a value"))?;
    Ok((name, value))
}

/// One caller's way to the service.
#[derive(Debug)]
pub struct Target {
    address: String,
    path: Uri,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Target {
    /// The connection that the last answer left open. Taken out, so that one that is given up half way is not used again.
    async fn kept(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut kept = self.connection.take()?;
        kept.ready().await.ok()?;
        Some(kept)
    }

    async fn connect(&self) -> Option<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(&self.address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        // Its end is seen by the sender.
        tokio::spawn(async move { drop(connection.await) });
        Some(sender)
    }
}

impl Service for Target {
    async fn send(&mut self) -> Result<Answer, &'static str> {
        let mut connection = match self.kept().await {
            Some(kept) => kept,
            None => self.connect().await.ok_or("connect")?,
        };
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = self.headers.clone();
        let mut response = connection.send_request(request).await.map_err(|_| "broken")?;
        while let Some(frame) = response.body_mut().frame().await {
            frame.map_err(|_| "broken")?;
        }
        self.connection = Some(connection);
        let retry_after = response.headers().get(RETRY_AFTER).map(|value| {
            let seconds = value.to_str().ok().and_then(|text| text.parse().ok());
            seconds.map_or(Wait::Unreadable, Wait::Seconds)
        });
        Ok(Answer { status: response.status().as_u16(), retry_after })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn template(url: &str, headers: &[&str]) -> Template {
        let headers = headers.iter().map(|line| (*line).to_owned()).collect();
        Template { url: url.into(), headers, method: Method::GET, body: String::new() }
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for (url, headers, why) in [
            ("https://127.0.0.1/", &[][..], "only http://"),
            ("127.0.0.1:8080", &[], "only http://"),
            ("http://", &[], "--url"),
            ("http://a b/", &[], "--url"),
            ("http://127.0.0.1/", &["X-User"], "no colon"),
            ("http://127.0.0.1/", &["a b: c"], "name"),
            ("http://127.0.0.1/", &["a: \u{1}"], "value"),
        ] {
            let error = template(url, headers).of(1).unwrap_err();
            assert!(error.contains(why), "{url} {headers:?}: {error}");
        }
        assert!(template("http://h/{caller}", &[]).tells_callers_apart());
        assert!(template("http://h/", &["x: {caller}"]).tells_callers_apart());
        assert!(!template("http://h/", &["x: y"]).tells_callers_apart());
    }

    #[tokio::test]
    async fn a_request_is_sent_as_described_over_one_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let template = template(&format!("http://{address}/a/{{caller}}?b"), &["X-User: bench-{caller}"]);
        let mut target = template.of(7).unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = String::new();
            let answers = [
                "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
                "HTTP/1.1 429 No\r\nretry-after: 13\r\ncontent-length: 0\r\n\r\n",
            ];
            for answer in answers {
                let mut bytes = vec![0; 1000];
                let read = stream.read(&mut bytes).await.unwrap();
                seen = String::from_utf8(bytes[..read].to_vec()).unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            seen
        });
        assert_eq!(target.send().await, Ok(Answer { status: 200, retry_after: None }));
        assert_eq!(target.send().await, Ok(Answer { status: 429, retry_after: Some(Wait::Seconds(13)) }));
        let seen = served.await.unwrap();
        assert!(seen.starts_with("GET /a/7?b HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("x-user: bench-7\r\n") && seen.contains(&format!("host: {address}\r\n")), "{seen}");
        // Nobody listens any more: the broken connection is given up, and no new one comes about.
        assert!(target.send().await.is_err());
        assert_eq!(target.send().await, Err("connect"));
    }
}
