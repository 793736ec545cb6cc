package decisions

import (
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/lru"
)

// Rate is a rate of bytes, before compression, and how many more bytes may come at once.
type Rate struct{ PerSecond, Burst float64 }

// Budget bounds how fast the log of decisions grows. Decisions beyond it are counted.
type Budget struct {
	// All is for all decisions, User for those about one user.
	All, User Rate
	// Anonymous is for all decisions about requests without a user, and Source for those of one address.
	Anonymous, Source Rate
}

// DefaultBudget is the default of [Options.Budget]. Clients without credentials get so little of it that they cannot
// displace the decisions about others.
var DefaultBudget = Budget{
	All: Rate{4 << 20, 64 << 20}, User: Rate{512 << 10, 16 << 20},
	Anonymous: Rate{16 << 10, 1 << 20}, Source: Rate{4 << 10, 256 << 10},
}

// rememberedUsers is how many users and sources have buckets of their own. One that is forgotten begins with a full one.
const rememberedUsers = 4096

// budget has the buckets of a Budget. It is safe for concurrent use.
type budget struct {
	rates Budget

	mu             sync.Mutex // held together with what the caches hold
	all, anonymous bucket
	users, sources *lru.Cache[string, *bucket]
}

// bucket holds tokens: the bytes that may be recorded at once.
type bucket struct {
	tokens float64
	at     time.Time // when tokens were added; the zero Time for a bucket that is full
}

func (b *budget) init(rates Budget) {
	b.rates = rates
	b.users, b.sources = lru.New[string, *bucket](rememberedUsers), lru.New[string, *bucket](rememberedUsers)
}

// take takes the size of a decision from the buckets. It returns false, and takes nothing, if one of them has too little.
func (b *budget) take(e *eventlog.Event, size int64, now time.Time) bool {
	name, source := e.Meta.GetActor().GetUser(), ""
	anonymous := name == "" || name == user.Anonymous
	if ips := e.Meta.GetRequest().GetSourceIps(); len(ips) > 0 {
		source = ips[0]
	}
	n := float64(size)
	b.mu.Lock()
	defer b.mu.Unlock()
	buckets := []*bucket{&b.all, bucketOf(b.users, name)}
	rates := []Rate{b.rates.All, b.rates.User}
	if anonymous {
		buckets, rates = []*bucket{&b.all, &b.anonymous, bucketOf(b.sources, source)}, []Rate{b.rates.All, b.rates.Anonymous, b.rates.Source}
	}
	for i, x := range buckets {
		if x.fill(rates[i], now); x.tokens < n {
			return false
		}
	}
	for _, x := range buckets {
		x.tokens -= n
	}
	return true
}

func bucketOf(cache *lru.Cache[string, *bucket], name string) *bucket {
	x, found := cache.Get(name)
	if !found {
		x = new(bucket)
		cache.Add(name, x, 1)
	}
	return x
}

// fill adds the tokens since the last time.
func (b *bucket) fill(r Rate, now time.Time) {
	if b.at.IsZero() {
		b.tokens = r.Burst
	} else if d := now.Sub(b.at); d > 0 {
		b.tokens = min(r.Burst, b.tokens+d.Seconds()*r.PerSecond)
	}
	b.at = now
}
