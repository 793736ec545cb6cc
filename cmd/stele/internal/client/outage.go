package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"stele.dev/stele/limits/steady"
)

// outage waits between attempts to reach a server. It says once that the server does not answer, and once that it answers again.
type outage struct {
	server string
	say    func(text string)

	lasts bool
	pause time.Duration
}

// The pause before the next attempt is doubled from the shortest to the longest.
const (
	shortestPause = time.Second
	longestPause  = 8 * time.Second
)

// wait waits before the next attempt, after an error or, without one, after a watch that ended. It returns the error if another attempt
// does not help.
func (o *outage) wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if o.pause = max(o.pause, shortestPause); err != nil {
		if !passes(err) {
			return err
		}
		if !o.lasts {
			o.lasts = true
			o.say(fmt.Sprintf("%s does not answer, and is tried again until it does: %s", o.server, ErrorText(err)))
		}
		defer func() { o.pause = min(2*o.pause, longestPause) }()
	}
	_ = steady.Wait(ctx, o.pause)
	return nil
}

// noteAnswer notes that the server answers.
func (o *outage) noteAnswer() {
	if o.pause = 0; o.lasts {
		o.lasts = false
		o.say(o.server + " answers; what it has recorded meanwhile follows")
	}
}

// unreachable is the error of a request that got no answer, or one that says to try again.
type unreachable struct{ error }

func (e unreachable) Unwrap() error { return e.error }

// passes reports whether a request that failed may succeed later.
func passes(err error) bool { return errors.As(err, new(unreachable)) }

// readable makes the error of a request readable, as [Readable] does, and keeps whether it may pass.
func readable(err error, body []byte) error {
	status := apierrors.APIStatus(nil)
	if passing := !errors.As(err, &status); !passing {
		code := status.Status().Code
		if passing = code >= http.StatusInternalServerError || code == http.StatusTooManyRequests; !passing {
			return Readable(err, body)
		}
	}
	return unreachable{Readable(err, body)}
}

// watched is an event of a watch, decoded as far as it must be to go on after it.
type watched struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch reads a watch after a resource version, which it advances, until the connection ends. It calls answered when the server has answered,
// and each with the objects.
func watch(ctx context.Context, request *rest.Request, version *string, answered func(), each func(text json.RawMessage) error) error {
	stream, err := request.Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", *version).Stream(ctx)
	if err != nil {
		return readable(err, nil)
	}
	defer stream.Close()
	answered()
	decoder := json.NewDecoder(stream)
	for {
		var event watched
		if decoder.Decode(&event) != nil {
			return nil // the connection ended: another watch goes on
		}
		if event.Type == "ERROR" {
			status := new(apierrors.StatusError)
			if err := json.Unmarshal(event.Object, &status.ErrStatus); err != nil {
				return err
			}
			return readable(status, event.Object)
		}
		var object struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return err
		}
		if event.Type != "BOOKMARK" {
			if err := each(event.Object); err != nil {
				return err
			}
		}
		*version = object.Metadata.ResourceVersion
	}
}
