package cost

import (
	"strings"
	"time"

	"stele.dev/stele/core/call"
	"stele.dev/stele/limits/fairqueue"
	"stele.dev/stele/policy"
)

// Times of writes.
const (
	writeTime  = 130 * time.Microsecond // a write of a small object
	deleteTime = 60 * time.Microsecond  // one of many deletes of a collection
	delivered  = 5 * time.Microsecond   // an event to a watcher, besides its bytes

	bodyByte  = 13_000 // picoseconds for a byte of the body, or of the object that it changes
	applyByte = 30_000 // the same, if field managers are merged
	// unknownBody is the assumed size of a body without a Content-Length.
	unknownBody = 64 << 10
)

// bodySize returns the size of the body, or a guess if the client does not say it.
func bodySize(c *call.Call) int64 {
	if c.HTTP.ContentLength < 0 {
		return unknownBody
	}
	return min(c.HTTP.ContentLength, call.MaxBody)
}

// Body returns the time to decode the body of a call.
func Body(c *call.Call) time.Duration { return forBytes(bodySize(c), bodyByte) }

// write returns the cost of a write of one object.
func (e *Estimator) write(c *call.Call, kind *policy.Version) fairqueue.Work {
	size := bodySize(c)
	r, ns := kind.Kind.Stored().GroupResource(), namespace(c, kind)
	name, each := c.Info.Name, int64(bodyByte)
	d := writeTime
	if c.Info.Verb != "create" {
		if c.Info.Verb != "delete" {
			size += stored(c, kind)
		}
		if c.Info.Verb == "patch" && strings.Contains(c.HTTP.Header.Get("Content-Type"), "apply-patch") {
			each = applyByte
		}
	} else if c.Info.Subresource == "" {
		name = ""
	}
	d += forBytes(size, each)
	watchers := e.Objects.Watchers(r, ns, name)
	return e.leaving(work(d), time.Duration(watchers)*(delivered+forBytes(size, sentByte)))
}

// deleteCollection returns the cost of deletes of the objects that a list finds.
func (e *Estimator) deleteCollection(c *call.Call, kind *policy.Version) fairqueue.Work {
	q := parse(c.HTTP.URL.RawQuery)
	found, d := e.find(c, kind, &q, q.page())
	d += time.Duration(found.Objects)*deleteTime + answer(c, found.Bytes)
	watchers := e.Objects.Watchers(kind.Kind.Stored().GroupResource(), namespace(c, kind), "")
	events := time.Duration(found.Objects)*delivered + forBytes(found.Bytes, sentByte)
	return e.leaving(work(d), time.Duration(watchers)*min(events, maxAfter))
}
