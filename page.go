package berth

// A Page selects part of a list, newest first unless Ascending. After is the id of the
// last object of the page before; an unknown id is ErrNotFound.
type Page struct {
	Limit int // 1…10,000
	After string
	// Before selects the objects that directly precede this one. Not all lists support it.
	Before string
	// Bytes is the maximum size of the page, which has at least one object; 0 means no
	// limit. Only the store's lists of objects support it.
	Bytes     int64
	Ascending bool
}
