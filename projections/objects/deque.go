package objects

// deque is a queue that can also be indexed. Its zero value is empty.
type deque[T any] struct {
	items []T
	head  int // items[:head] are popped
}

func (d *deque[T]) len() int   { return len(d.items) - d.head }
func (d *deque[T]) at(i int) T { return d.items[d.head+i] }
func (d *deque[T]) push(x T)   { d.items = append(d.items, x) }

// pop takes the oldest item off; there must be one.
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
