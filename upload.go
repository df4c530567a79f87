package berth

// An Upload receives the bytes of a large file in parts.
type Upload struct {
	ID        UploadID `json:"id"`
	Object    string   `json:"object"` // "upload"
	Bytes     int64    `json:"bytes"`  // of the complete file, as announced
	CreatedAt int64    `json:"created_at"`
	ExpiresAt int64    `json:"expires_at"`
	Filename  string   `json:"filename"`
	Purpose   string   `json:"purpose"`
	Status    string   `json:"status"` // pending, completed or cancelled; an expired one no longer exists
	File      *File    `json:"file"`   // null until the upload is completed
}

// The statuses of an upload.
const (
	UploadPending   = "pending"
	UploadCompleted = "completed"
	UploadCancelled = "cancelled"
)

// An UploadPart is a part of an upload.
type UploadPart struct {
	ID        PartID   `json:"id"`
	Object    string   `json:"object"` // "upload.part"
	CreatedAt int64    `json:"created_at"`
	UploadID  UploadID `json:"upload_id"`
}
