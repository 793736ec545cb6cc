package call

import (
	"net/http"
)

// unread is a response that nobody reads.
type Discard struct{ header http.Header }

func (w *Discard) Header() http.Header { return w.header }

func (w *Discard) Write(b []byte) (int, error) { return len(b), nil }

func (w *Discard) WriteHeader(int) {}

// response remembers what was answered.
type Response struct {
	http.ResponseWriter
	Code  int
	bytes int64
}

func (w *Response) WriteHeader(code int) {
	if w.Code == 0 {
		w.Code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *Response) Write(b []byte) (int, error) {
	if w.Code == 0 {
		w.Code = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
