package host

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"stele.dev/stele/plugins/authorizerpb"
)

// longKey is the length from which a key is replaced by its hash, so that kept answers are small
// whatever the requests are like.
const longKey = 4 << 10

var keyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// withKey calls f with the question's key, which is only valid during the call. Two questions have the
// same key if and only if they differ in nothing but the time: short keys are the question itself, all of
// its fields with their lengths, and are compared as a whole; long ones are SHA-256 of that. So there is no
// collision to be chosen. Lists keep their order, which a plugin sees too; maps are sorted.
func withKey(q *authorizerpb.AuthorizeRequest, f func(key []byte)) {
	buffer := keyBuffers.Get().(*[]byte)
	key := appendKey((*buffer)[:0], q)
	whole := key
	if len(key) >= longKey {
		sum := sha256.Sum256(key)
		key = append(key[:0], 'h')
		key = append(key, sum[:]...)
	}
	f(key)
	if cap(whole) <= 64<<10 {
		*buffer = whole
		keyBuffers.Put(buffer)
	}
}

func appendKey(k []byte, q *authorizerpb.AuthorizeRequest) []byte {
	k = append(k, 'q') // and a hash begins with h: the two kinds never meet
	u := q.GetUser()
	k = appendText(k, u.GetName())
	k = appendText(k, u.GetUid())
	k = appendTexts(k, u.GetGroups())
	k = binary.AppendUvarint(k, uint64(len(u.GetExtra())))
	if len(u.GetExtra()) > 0 {
		for _, name := range slices.Sorted(maps.Keys(u.GetExtra())) {
			k = appendText(k, name)
			k = appendTexts(k, u.GetExtra()[name].GetValues())
		}
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
