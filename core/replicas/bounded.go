package replicas

import (
	"context"
	"io"
	"net/http"
	"time"
)

// bounded gives each request a deadline, so that a stop does not wait for a log that cannot be reached.
type bounded struct {
	to      http.RoundTripper
	timeout time.Duration
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(q *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(q.Context(), b.timeout)
	answer, err := b.to.RoundTrip(q.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = &boundedBody{answer.Body, cancel}
	return answer, nil
}

// boundedBody ends the deadline when the answer has been read.
type boundedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
