package connections

// handlerStack is about what the frames of a handler need. With it a stack has 16 KiB, which hold most requests.
const handlerStack = 10 << 10

// growStack makes the stack of a handler large enough at once. net/http serves each request on a new goroutine with a small stack, and a
// stack that grows deep inside a handler is copied with all frames on it.
//
//go:noinline
func growStack() {
	var room [handlerStack]byte
	fill(&room)
}

// fill keeps the compiler from leaving out the room.
//
//go:noinline
func fill(room *[handlerStack]byte) { room[0] = 1 }
