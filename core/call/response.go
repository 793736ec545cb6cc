package call

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"

	"stele.dev/stele/core/status"
)

// Response is the ResponseWriter of a call. It remembers the status code.
type Response struct {
	http.ResponseWriter
	Code int // 0 until the header is written
	Size int // bytes of the body that were sent
	// Gate is called once, before the header is written, with the status code. If it returns an error, the client gets
	// that error in place of the answer. nil to write the header at once.
	Gate func(code int) error
	// Hold lets the answer wait in memory until [Response.Release], up to so many bytes; above that it is sent as it comes.
	// The gate is asked before the first byte is sent. 0 to send the answer at once.
	Hold    int
	held    []byte
	refused bool // what is written is dropped, because the gate has refused the answer
	pace    pace // of a request that has seats
}

// errRefused is the error of writes to an answer that the gate has refused.
var errRefused = errors.New("call: the answer was refused")

// WriteHeader implements http.ResponseWriter.
func (w *Response) WriteHeader(code int) {
	if w.Hold > 0 {
		w.Code = cmp.Or(w.Code, code)
		return
	}
	if w.refused || w.Gate != nil && w.Code == 0 && !w.pass(code) {
		return
	}
	if w.Code == 0 {
		w.Code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *Response) Write(b []byte) (int, error) {
	if w.Hold > 0 {
		w.Code = cmp.Or(w.Code, http.StatusOK)
		if len(w.held)+len(b) <= w.Hold {
			w.held = append(w.held, b...)
			return len(b), nil
		}
		w.send()
	}
	if w.refused || w.Gate != nil && w.Code == 0 && !w.pass(http.StatusOK) {
		return 0, errRefused
	}
	if w.Code == 0 {
		w.Code = http.StatusOK
	}
	if w.pace.request != nil && w.pace.begin(w.Size+len(b)) {
		defer w.pace.end()
	}
	n, err := w.ResponseWriter.Write(b)
	w.Size += n
	return n, err
}

// Release sends an answer that was held, if the gate lets it pass. The answer is complete.
func (w *Response) Release() {
	if w.Hold == 0 {
		return
	}
	if w.Code == 0 {
		w.Hold = 0
		return
	}
	w.send()
}

// send sends what is held, if the gate lets it pass.
func (w *Response) send() {
	code, held := w.Code, w.held
	w.Code, w.Hold, w.held = 0, 0, nil
	w.WriteHeader(code)
	if len(held) > 0 {
		_, _ = w.Write(held)
	}
}

// Drop forgets an answer that is held, so that another one can be written.
func (w *Response) Drop() {
	if w.Hold > 0 {
		w.Code, w.Hold, w.held = 0, 0, nil
	}
}

// FlushError sends what was written, unless it is held. It is for http.ResponseController.
func (w *Response) FlushError() error {
	if w.Hold > 0 {
		return nil
	}
	if f, ok := w.ResponseWriter.(interface{ FlushError() error }); ok { // as a http.ResponseController does, which is made for each flush
		return f.FlushError()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// pass asks the gate, and answers with its error if it refuses. It reports whether the answer may be written.
func (w *Response) pass(code int) bool {
	gate := w.Gate
	w.Gate = nil
	err := gate(code)
	if err == nil {
		return true
	}
	w.refused = true
	s, _ := status.From(err)
	text, err := json.Marshal(s)
	if err != nil {
		text = nil // it is a Status
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Del("Content-Encoding")
	h.Del("ETag")
	h.Set("Content-Type", "application/json")
	w.Code = int(s.Code)
	w.ResponseWriter.WriteHeader(w.Code)
	_, _ = w.ResponseWriter.Write(text)
	return false
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// NewDiscard returns a response that discards its body. It keeps its header and code.
func NewDiscard() *Response { return &Response{ResponseWriter: discard{}} }

type discard http.Header

func (d discard) Header() http.Header         { return http.Header(d) }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
