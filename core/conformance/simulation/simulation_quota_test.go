package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/logpb"
)

// quotaed is the namespace of the simulation with a quota.
const quotaed = "default"

// limit creates, changes and deletes a quota for widgets: for their number, and for the sum of their sizes. Clients are
// refused meanwhile, as far as widgets exceed it.
func (s *simulation) limit(ctx context.Context, rng *rand.Rand) {
	const path = "/api/v1/namespaces/" + quotaed + "/resourcequotas"
	for wait(ctx, time.Duration(rng.IntN(400))*time.Millisecond) {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"count/widgets.example.com":"%d","size.example.com":"%d"}}}`, 1+rng.IntN(3), 1+rng.IntN(7))
		method, at := "PUT", path+"/q"
		switch rng.IntN(6) {
		case 0:
			method, body = "DELETE", ""
		case 1, 2:
			method, at = "POST", path
		}
		if a := s.replica(rng).Do(method, at+"?timeout=2s", body); a.Code < 300 {
			s.count("quota")
		}
		if rng.IntN(2) == 0 {
			s.burst(s.replica(rng))
		}
	}
}

// burst creates widgets through one replica at once, so that its batches have several, and deletes them.
func (s *simulation) burst(r *planetest.Replica) {
	const path = "/apis/example.com/v1/namespaces/" + quotaed + "/widgets"
	for _, method := range []string{"POST", "DELETE"} {
		var writers sync.WaitGroup
		for i := range 4 {
			writers.Go(func() {
				name := fmt.Sprint("burst-", i)
				if method == "POST" {
					r.Do("POST", path+"?timeout=2s", planetest.Widget(name, 1))
				} else {
					r.Do("DELETE", path+"/"+name+"?timeout=2s", "")
				}
			})
		}
		writers.Wait()
	}
}

// usageRecord is what widgets of the namespace use, and may use, from a revision on.
type usageRecord struct {
	from         uint64
	count, size  int64
	most, larges int64 // the limits; -1 for none
}

// addUsage adds what an event changes of the usage. It reports how the event breaks a quota: it adds to what is above it then.
func (m *model) addUsage(e *eventlog.Event) (broken string) {
	o := e.Meta.GetObject()
	if o.GetNamespace() != quotaed || o.GetResource() != "widgets" && o.GetResource() != "resourcequotas" {
		return ""
	}
	was := usageRecord{most: -1, larges: -1}
	if n := len(m.usage); n > 0 {
		was = m.usage[n-1]
	}
	is := was
	is.from = e.Revision
	body, gone := e.Content(logpb.Role_ROLE_OBJECT), e.Meta.GetType() == logpb.Type_TYPE_DELETED
	switch {
	case o.GetResource() == "resourcequotas" && gone:
		is.most, is.larges = -1, -1
	case o.GetResource() == "resourcequotas":
		hard := gjson.GetBytes(body, "spec.hard").Map()
		is.most, is.larges = hard["count/widgets.example.com"].Int(), hard["size.example.com"].Int()
	default:
		if m.sizes == nil {
			m.sizes = map[string]int64{}
		}
		before, existed := m.sizes[o.GetName()]
		is.size -= before
		if existed {
			is.count--
			delete(m.sizes, o.GetName())
		}
		if !gone {
			m.sizes[o.GetName()] = gjson.GetBytes(body, "spec.size").Int()
			is.size, is.count = is.size+m.sizes[o.GetName()], is.count+1
		}
		if was.most >= 0 && is.count > was.count && is.count > was.most || was.larges >= 0 && is.size > was.size && is.size > was.larges {
			broken = fmt.Sprintf("from %+v to %+v", was, is)
		}
	}
	m.usage = append(m.usage, is)
	return broken
}

// usageAt returns the usage at a revision.
func (m *model) usageAt(revision uint64) usageRecord {
	at := usageRecord{most: -1, larges: -1}
	for _, u := range m.usage {
		if u.from > revision {
			break
		}
		at = u
	}
	return at
}

// overQuota reports whether a write exceeds the quota at a revision.
func (m *model) overQuota(o *operation, revision uint64) bool {
	at, more, count := m.usageAt(revision), o.size, int64(1)
	if o.verb != "create" {
		count, more = 0, more-gjson.Get(m.at(o.key, revision), "spec.size").Int()
	}
	return at.most >= 0 && count > 0 && at.count+count > at.most || at.larges >= 0 && more > 0 && at.size+more > at.larges
}

// refusedByQuota reports whether an answer refuses a write because of a quota.
func (o *operation) refusedByQuota() bool {
	return o.answer.Code == 403 && strings.Contains(string(o.answer.Body), "exceeded quota: q, requested: ")
}
