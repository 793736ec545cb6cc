package host

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"

	"stele.dev/stele/plugins/authorizerpb"
)

// longKey is the length from which on a key is replaced by its hash, so that cache entries are small.
const longKey = 4 << 10

// keyBuffers are buffers for keys, so that a cache hit does not allocate.
var keyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// makeKey makes the cache key of a question, in the buffer. Two questions have the same key if and only if they are equal
// except for the time. A short key is the question itself: all its fields with their lengths. A long key is the SHA-256
// of that. So nobody can choose a collision. Lists keep their order, which the plugin sees too; maps are sorted.
func makeKey(buffer *[]byte, q *authorizerpb.AuthorizeRequest) []byte {
	key := appendKey((*buffer)[:0], q)
	if cap(key) <= 64<<10 {
		*buffer = key // it may have grown
	}
	if len(key) < longKey {
		return key
	}
	sum := sha256.Sum256(key)
	return append(append(key[:0], 'h'), sum[:]...) // short keys begin with q
}

func appendKey(k []byte, q *authorizerpb.AuthorizeRequest) []byte {
	k = append(k, 'q')
	u := q.GetUser()
	k = appendText(k, u.GetName())
	k = appendText(k, u.GetUid())
	k = appendTexts(k, u.GetGroups())
	k = binary.AppendUvarint(k, uint64(len(u.GetExtra())))
	names := make([]string, 0, 8)
	for name := range u.GetExtra() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		k = appendText(k, name)
		k = appendTexts(k, u.GetExtra()[name].GetValues())
	}
	k = appendText(k, q.GetVerb())
	switch target := q.GetTarget().(type) {
	case *authorizerpb.AuthorizeRequest_Resource:
		r := target.Resource
		k = append(k, 1)
		for _, s := range [...]string{r.GetGroup(), r.GetVersion(), r.GetResource(), r.GetSubresource(), r.GetNamespace(), r.GetName()} {
			k = appendText(k, s)
		}
		k = appendRequirements(k, r.GetFieldSelector())
		k = appendRequirements(k, r.GetLabelSelector())
	case *authorizerpb.AuthorizeRequest_Path:
		k = appendText(append(k, 2), target.Path)
	default:
		k = append(k, 0)
	}
	return k
}

func appendText(k []byte, s string) []byte {
	return append(binary.AppendUvarint(k, uint64(len(s))), s...)
}

func appendTexts(k []byte, list []string) []byte {
	k = binary.AppendUvarint(k, uint64(len(list)))
	for _, s := range list {
		k = appendText(k, s)
	}
	return k
}

func appendRequirements(k []byte, list []*authorizerpb.Requirement) []byte {
	k = binary.AppendUvarint(k, uint64(len(list)))
	for _, r := range list {
		k = appendText(k, r.GetKey())
		k = appendText(k, r.GetOperator())
		k = appendTexts(k, r.GetValues())
	}
	return k
}
