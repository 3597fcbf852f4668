//! The bare limit of the fan-out: an actix-ws server that sends frames which it is handed to everybody, and nothing else.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use actix_ws::Session;
use bytestring::ByteString;
use futures_util::StreamExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::host::WORKERS;

/// Frames that are handed over together.
pub type Frames = Arc<[ByteString]>;
type Workers = Arc<Mutex<Vec<UnboundedSender<Frames>>>>;
type Sessions = Rc<RefCell<Vec<Session>>>;

/// A running server.
pub struct Bare {
    pub address: SocketAddr,
    workers: Workers,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bare {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let workers = Workers::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let all = Arc::clone(&workers);
        let serve = async move {
            let factory = move || {
                let sessions = Sessions::default();
                let (sender, frames) = unbounded_channel();
                all.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
                actix_rt::spawn(broadcast(Rc::clone(&sessions), frames));
                App::new().app_data(sessions).route("/", web::get().to(upgrade))
            };
            let server = HttpServer::new(factory).workers(WORKERS).disable_signals().shutdown_timeout(1);
            let server = server.listen(listener).expect("listening").run();
            let handle = server.handle();
            actix_rt::spawn(server);
            let _ = stopped.await;
            handle.stop(false).await;
        };
        let thread = std::thread::spawn(move || actix_rt::System::new().block_on(serve));
        Self { address, workers, stop: Some(stop), thread: Some(thread) }
    }

    /// Sends `frames` to everybody.
    pub fn send(&self, frames: &Frames) {
        for worker in self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = worker.send(Arc::clone(frames));
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn broadcast(sessions: Sessions, mut frames: UnboundedReceiver<Frames>) {
    while let Some(frames) = frames.recv().await {
        let all: Vec<Session> = sessions.borrow().clone();
        for mut session in all {
            for frame in frames.iter() {
                let _ = session.text(frame.clone()).await;
            }
        }
    }
}

async fn upgrade(request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, actix_web::Error> {
    let (response, session, mut messages) = actix_ws::handle(&request, payload)?;
    if let Some(sessions) = request.app_data::<Sessions>() {
        sessions.borrow_mut().push(session);
    }
    actix_rt::spawn(async move { while messages.next().await.is_some() {} });
    Ok(response)
}
