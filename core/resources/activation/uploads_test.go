package activation_test

import (
	"errors"
	"testing"

	"stele.dev/stele/core/resources/activation"
)

// A user who has uploaded as much as there is room for does not keep others from uploading.
func TestUploadsOfOneUserLeaveRoomToOthers(t *testing.T) {
	s, err := activation.OpenUploads(t.TempDir(), 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	part := func(n int) []byte {
		data := make([]byte, activation.MaxSize)
		data[0], data[1] = byte(n), byte(n>>8)
		return data
	}
	put := func(owner string, n int) error {
		_, err := s.Put(owner, part(n))
		return err
	}
	n := 0
	for ; err == nil; n++ {
		err = put("greedy", n)
	}
	if !errors.Is(err, activation.ErrUploadsFull) || n < 60 {
		t.Fatalf("after %d parts: %v", n, err)
	}
	for i := range n / 3 {
		if err := put("other", n+i); err != nil {
			t.Fatalf("part %d of another user: %v", i, err)
		}
	}
	if err := put("greedy", 2*n); !errors.Is(err, activation.ErrUploadsFull) {
		t.Errorf("another part of the user who has most: %v", err)
	}
}
