package call

import "net/http"

// Response is the ResponseWriter of a call. It remembers the status code.
type Response struct {
	http.ResponseWriter
	Code int  // 0 until the header is written
	pace pace // of a request that has seats
}

// WriteHeader implements http.ResponseWriter.
func (w *Response) WriteHeader(code int) {
	if w.Code == 0 {
		w.Code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *Response) Write(b []byte) (int, error) {
	if w.Code == 0 {
		w.Code = http.StatusOK
	}
	if w.pace.request != nil && w.pace.begin(len(b)) {
		defer w.pace.end()
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// NewDiscard returns a response that discards its body. It keeps its header and code.
func NewDiscard() *Response { return &Response{ResponseWriter: discard{}} }

type discard http.Header

func (d discard) Header() http.Header         { return http.Header(d) }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
