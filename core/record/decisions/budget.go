package decisions

import (
	"cmp"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
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
	// Share is for all decisions about the requests of one owner while the log is at least half full, when what is recorded
	// will soon displace older decisions of others. The zero Rate is for an eighth of the log in a day, an hour's part of it
	// at once. The owner of a request is its impersonator, if there is one, else its user. The service accounts of a namespace
	// are one owner, because who may create them may create any number, and requests without a user are one. The service accounts of
	// all namespaces together have the shares of accountShares owners, because who may create namespaces may create any number.
	Share Rate
}

// accountShares is how many shares the service accounts of all namespaces have together.
const accountShares = 2

// shareOf returns the default of Budget.Share for a log of a size.
func shareOf(bytes int64) Rate {
	const owners, day, hour = 8, 24 * 60 * 60, 60 * 60
	perSecond := float64(bytes) / owners / day
	return Rate{PerSecond: perSecond, Burst: perSecond * hour}
}

// ownerOf returns the owner of a request. All requests without a user have one owner.
func ownerOf(e *eventlog.Event) string {
	a := e.Meta.GetActor()
	owner := cmp.Or(a.GetImpersonator().GetUser(), a.GetUser(), user.Anonymous)
	if namespace, _, err := serviceaccount.SplitUsername(owner); err == nil {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return owner
}

// isAccounts reports whether an owner is the service accounts of a namespace.
func isAccounts(owner string) bool {
	return strings.HasPrefix(owner, serviceaccount.ServiceAccountGroupPrefix)
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
	accounts       bucket // of all service accounts
	users, sources *lru.Cache[string, *bucket]
	shares         *lru.Cache[string, *bucket] // by owner
	full           bool                        // shares count
}

// bucket holds tokens: the bytes that may be recorded at once.
type bucket struct {
	tokens float64
	at     time.Time // when tokens were added; the zero Time for a bucket that is full
}

func (b *budget) init(rates Budget) {
	b.rates = rates
	b.shares = lru.New[string, *bucket](rememberedUsers)
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
	if b.full {
		owner := ownerOf(e)
		buckets, rates = append(buckets, bucketOf(b.shares, owner)), append(rates, b.rates.Share)
		if isAccounts(owner) {
			buckets, rates = append(buckets, &b.accounts), append(rates, Rate{accountShares * b.rates.Share.PerSecond, accountShares * b.rates.Share.Burst})
		}
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

// setFull says whether the log is so full that owners have shares.
func (b *budget) setFull(full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = full
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
