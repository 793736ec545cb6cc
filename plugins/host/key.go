package host

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"

	"stele.dev/stele/plugins/authorizerpb"
)

// key identifies a question.
type key [sha256.Size]byte

// keyBuffers are reused, so that making a key takes no memory.
var keyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 1<<10); return &b }}

// keyOf returns the key of a question: SHA-256 of all of its fields with their lengths. Two questions have the same key
// if and only if they differ in nothing but the time. Lists keep their order, which a plugin sees too; maps are sorted.
func keyOf(q *authorizerpb.AuthorizeRequest) key {
	buffer := keyBuffers.Get().(*[]byte)
	defer keyBuffers.Put(buffer)
	text := appendKey((*buffer)[:0], q)
	if cap(text) <= 64<<10 {
		*buffer = text // which may have grown
	}
	return sha256.Sum256(text)
}

func appendKey(k []byte, q *authorizerpb.AuthorizeRequest) []byte {
	k = appendUser(append(k, 'q'), q.GetUser())
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

func appendUser(k []byte, u *authorizerpb.User) []byte {
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
