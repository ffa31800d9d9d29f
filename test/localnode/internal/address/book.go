package address

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// poolBits is the size of the pool for pods without a fixed address: 127.64.0.0/10.
const poolBits = 22

var pool = netip.MustParsePrefix("127.64.0.0/10")

// Book knows which identity has which address, and which pod object holds it now. Identities without a fixed address
// keep theirs in a file, so they find it again in the next run.
type Book struct {
	path string

	mu         sync.Mutex
	remembered map[string]netip.Addr
	holders    map[netip.Addr]*holder
}

type holder struct {
	identity string
	uid      types.UID
	freed    chan struct{}
}

// Held is returned while another pod object holds the address: a different identity (two sets on one subnet), or the
// same identity's predecessor whose processes have not ended yet.
type Held struct {
	Addr netip.Addr
	By   string
	// Freed closes when the holder lets go.
	Freed <-chan struct{}
}

// Error is written for the pod's status.
func (h *Held) Error() string { return fmt.Sprintf("address %s is in use by pod %s", h.Addr, h.By) }

// Open reads the book at path; a missing file is an empty book.
func Open(path string) (*Book, error) {
	b := &Book{path: path, remembered: map[string]netip.Addr{}, holders: map[netip.Addr]*holder{}}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the address book: %w", err)
	}
	if err := json.Unmarshal(raw, &b.remembered); err != nil {
		return nil, fmt.Errorf("reading the address book %s: %w", path, err)
	}
	return b, nil
}

// Claim gives the pod its address and holds it until Release. A second claim by the same pod object is the same
// address. The error is a *Held, or says what is wrong with the annotation.
func (b *Book) Claim(pod *corev1.Pod) (netip.Addr, error) {
	fixed, isFixed, err := Fixed(pod)
	if err != nil {
		return netip.Addr{}, err
	}
	identity := pod.Namespace + "/" + pod.Name
	b.mu.Lock()
	defer b.mu.Unlock()
	addr := fixed
	if !isFixed {
		if addr, err = b.recall(identity); err != nil {
			return netip.Addr{}, err
		}
	}
	if h, ok := b.holders[addr]; ok {
		if h.uid == pod.UID {
			return addr, nil
		}
		return netip.Addr{}, &Held{Addr: addr, By: h.identity, Freed: h.freed}
	}
	b.holders[addr] = &holder{identity: identity, uid: pod.UID, freed: make(chan struct{})}
	return addr, nil
}

// Release lets go of what the pod object holds. A pod that holds nothing is no error.
func (b *Book) Release(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for addr, h := range b.holders {
		if h.uid == uid {
			delete(b.holders, addr)
			close(h.freed)
		}
	}
}

// recall returns the identity's remembered address or picks a free one and remembers it on disk.
func (b *Book) recall(identity string) (netip.Addr, error) {
	if addr, ok := b.remembered[identity]; ok {
		return addr, nil
	}
	taken := make(map[netip.Addr]bool, len(b.remembered))
	for _, a := range b.remembered {
		taken[a] = true
	}
	// The start depends on the file too, so that two agents on one machine rarely meet.
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(b.path + "\x00" + identity))
	for i := range uint32(1) << poolBits {
		addr := add(pool.Addr(), (hash.Sum32()+i)%(1<<poolBits))
		if last := addr.As4()[3]; last == 0 || last == 255 || taken[addr] {
			continue
		}
		b.remembered[identity] = addr
		return addr, b.save()
	}
	return netip.Addr{}, fmt.Errorf("no address left in %s", pool)
}

// save replaces the file as a whole, so a crash leaves the old or the new one.
func (b *Book) save() error {
	raw, err := json.MarshalIndent(b.remembered, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the address book: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(b.path), 0o755); err != nil {
		return fmt.Errorf("making the address book's folder: %w", err)
	}
	if err := os.WriteFile(b.path+".new", raw, 0o600); err != nil {
		return fmt.Errorf("writing the address book: %w", err)
	}
	if err := os.Rename(b.path+".new", b.path); err != nil {
		return fmt.Errorf("replacing the address book: %w", err)
	}
	return nil
}
