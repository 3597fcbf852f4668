//! The pages for browsers: the chat at `/`, the admin pages under `/admin/`, and the files that they are made of, under `/ui/`.
//!
//! They are in the binary; a debug build reads them from `ui/` on the disk, so that work on them needs no build. They are
//! shells for anybody who asks: nothing of the host is in them. What they show they ask for themselves, with the token that
//! somebody gave them, like any other client.
//!
//! Always: no script and no style but the files of this host, no connection but to it, and no frame around a page. Left out
//! on purpose: the WebSocket at `/`, which is `protocol`'s, and the pages of visuals, which are never the host's own.
//! Source: the outer contract, endpoints.

use actix_web::http::header::{self, ETag, EntityTag, Header as _, HeaderName, HeaderValue, IfNoneMatch};
use actix_web::{HttpRequest, HttpResponse, web};
use rust_embed::{Embed, EmbeddedFile};

/// What a page may do. Visuals are framed from `/visuals/`, where they have a policy of their own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types dompurify";

/// What every answer says. A file that was kept is asked for again and answered with 304: pages of two versions never mix.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
];

/// The files of the pages.
#[derive(Embed)]
#[folder = "ui/"]
struct Files;

/// Adds the pages to a worker's application; the one at `/` is [`chat`].
pub fn routes(config: &mut web::ServiceConfig) {
    config
        .service(web::resource("/ui/{file:.+}").route(web::get().to(file)))
        .service(web::resource("/admin").route(web::get().to(to_admin)))
        .service(web::resource("/admin/").route(web::get().to(admin)))
        .service(web::resource("/admin/{page}").route(web::get().to(admin)));
}

/// The page to chat with, for a request at `/` that asks for no WebSocket.
pub fn chat(request: &HttpRequest) -> HttpResponse {
    answer(request, "chat/index.html")
}

/// One shell for all admin pages: it looks at its address.
async fn admin(request: HttpRequest) -> HttpResponse {
    answer(&request, "admin/index.html")
}

/// To the folder, so that relative links work; also behind a proxy that serves the host under a path.
async fn to_admin(request: HttpRequest) -> HttpResponse {
    let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
    HttpResponse::TemporaryRedirect().insert_header((header::LOCATION, format!("admin/{query}"))).finish()
}

async fn file(request: HttpRequest, file: web::Path<String>) -> HttpResponse {
    answer(&request, &file)
}

fn answer(request: &HttpRequest, path: &str) -> HttpResponse {
    let mut response = match Files::get(path) {
        Some(file) => whole_or_unchanged(request, path, file),
        None => HttpResponse::NotFound().content_type("text/plain; charset=utf-8").body("there is no such page"),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn whole_or_unchanged(request: &HttpRequest, path: &str, file: EmbeddedFile) -> HttpResponse {
    let tag = EntityTag::new_strong(file.metadata.sha256_hash().iter().map(|byte| format!("{byte:02x}")).collect());
    let is_known = match IfNoneMatch::parse(request) {
        Ok(IfNoneMatch::Any) => true,
        Ok(IfNoneMatch::Items(known)) => known.iter().any(|known| known.weak_eq(&tag)),
        Err(_) => false,
    };
    if is_known {
        return HttpResponse::NotModified().insert_header(ETag(tag)).finish();
    }
    let kind = mime_guess::from_path(path).first_or_octet_stream();
    let kind = if kind.type_() == "text" { format!("{kind}; charset=utf-8") } else { kind.to_string() };
    HttpResponse::Ok().insert_header(ETag(tag)).content_type(kind).body(file.data.into_owned())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn get(path: &str, known: Option<&str>) -> HttpResponse {
        let request = TestRequest::get();
        let request = known.into_iter().fold(request, |request, tag| request.insert_header(("if-none-match", tag)));
        answer(&request.to_http_request(), path)
    }

    fn header<'a>(response: &'a HttpResponse, name: &str) -> &'a str {
        response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    #[test]
    fn every_file_says_what_it_is_and_that_it_may_run_nothing_else() {
        for (path, kind) in [
            ("chat/index.html", "text/html; charset=utf-8"),
            ("shared/style.css", "text/css; charset=utf-8"),
            ("shared/api.js", "text/javascript; charset=utf-8"),
            ("vendor/purify.es.mjs", "application/javascript"),
            ("shared/icon.svg", "image/svg+xml"),
        ] {
            let response = get(path, None);
            assert_eq!((response.status().as_u16(), header(&response, "content-type")), (200, kind), "{path}");
            assert!(header(&response, "content-security-policy").contains("frame-ancestors 'none'"), "{path}");
            assert_eq!(header(&response, "x-content-type-options"), "nosniff", "{path}");
        }
    }

    #[test]
    fn a_file_that_a_browser_has_is_not_sent_again() {
        let tag = header(&get("shared/api.js", None), "etag").to_owned();
        assert_eq!(get("shared/api.js", Some(&tag)).status().as_u16(), 304);
        assert_eq!(get("shared/api.js", Some(&format!("\"x\", W/{tag}"))).status().as_u16(), 304);
        assert_eq!(get("shared/api.js", Some("\"x\"")).status().as_u16(), 200);
    }

    #[test]
    fn nothing_outside_of_the_folder_is_a_page() {
        for path in ["../Cargo.toml", "shared/../../Cargo.toml", "/etc/passwd", "shared", "", "nothing.js"] {
            assert_eq!(get(path, None).status().as_u16(), 404, "{path}");
        }
    }

    #[test]
    fn no_page_has_a_script_or_a_style_in_it_that_the_policy_would_refuse() {
        for path in Files::iter().filter(|path| path.ends_with(".html")) {
            let file = Files::get(&path).unwrap();
            let text = String::from_utf8(file.data.into_owned()).unwrap();
            assert!(!text.contains("<style") && !text.contains(" style=") && !text.contains(" onclick="), "{path}");
            assert_eq!(text.matches("<script").count(), text.matches("src=").count(), "{path}");
        }
    }
}
