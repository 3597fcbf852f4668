//! `GET /api/attachments`: a stored attachment, as a download.
//!
//! Its bytes came from anybody: they are never a page of this host's origin, whatever they are. Only what lies in the
//! attachments' folder under a name of the host's own is read.

use std::io::Read;
use std::sync::Arc;

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};

use super::answer::{Admitted, ApiFault, off_thread};
use super::query::Query;
use crate::attachments::FileRef;

/// Answers the bytes of the attachment that a message names by `uri`.
pub async fn download(admitted: Admitted, request: HttpRequest) -> Result<HttpResponse, ApiFault> {
    let query = Query::of(&request, &["uri"])?;
    let uri = query.text("uri")?.ok_or_else(|| ApiFault::bad_parameter("uri", "is needed"))?;
    let missing = || ApiFault::not_found("not-found", "there is no such attachment".into());
    let file = FileRef::of_uri(&uri).ok_or_else(missing)?;
    let (host, who) = (Arc::clone(&admitted.admin.host), admitted.who);
    let bytes = off_thread(move || {
        if !host.may_read_attachment(&who, file)? {
            return Err(missing());
        }
        let (mut open, size) = host.attachments().open(file).map_err(|_| missing())?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        open.read_to_end(&mut bytes).map_err(|_| missing())?;
        Ok::<_, ApiFault>(bytes)
    });
    Ok(HttpResponse::Ok()
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_DISPOSITION, "attachment"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"))
        .insert_header(("Cross-Origin-Resource-Policy", "same-origin"))
        .insert_header((header::CACHE_CONTROL, "private, no-store"))
        .body(bytes.await?))
}
