package objects

// deque is a queue that can also be indexed. Its zero value is empty.
type deque[T any] struct {
	items []T
	head  int // items[:head] have been popped
}

func (d *deque[T]) len() int    { return len(d.items) - d.head }
func (d *deque[T]) get(i int) T { return d.items[d.head+i] }
func (d *deque[T]) push(x T)    { d.items = append(d.items, x) }

// pop removes and returns the oldest item. The queue must not be empty.
func (d *deque[T]) pop() T {
	var zero T
	x := d.items[d.head]
	d.items[d.head] = zero
	if d.head++; d.head*2 >= len(d.items) && d.head >= 64 {
		n := copy(d.items, d.items[d.head:])
		clear(d.items[n:])
		d.items, d.head = d.items[:n], 0
	}
	return x
}
