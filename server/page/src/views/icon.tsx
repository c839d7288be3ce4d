// Icons, drawn with lines on a grid of 24.

const PATHS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14M16 16l4.5 4.5",
  settings: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6a2 2 0 1 0 0 4 2 2 0 0 0 0-4M9 14a2 2 0 1 0 0 4 2 2 0 0 0 0-4",
  help: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M9.5 9.5a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1 1-1.1 1.8M12 17v.01",
  send: "M12 19V6M6 11.5 12 5.5l6 6",
  stop: "M7 7h10v10H7z",
  attach: "M20 11.5 12 19.3a5 5 0 0 1-7-7l8.3-8.2a3.3 3.3 0 0 1 4.7 4.7l-8.2 8.1a1.7 1.7 0 0 1-2.4-2.4l7.4-7.3",
  picture: "M4 5h16v14H4zM4 16.5l4.5-5 4.5 5M12 15.5l3-3 5 5M15.5 8.5v.01",
  camera: "M4 8h4l1.5-2.5h5L16 8h4v11H4zM12 10a3.2 3.2 0 1 0 0 6.4 3.2 3.2 0 0 0 0-6.4",
  sound: "M4 9.5v5h3.5L12 18.5v-13L7.5 9.5zM15.5 9a4.2 4.2 0 0 1 0 6M18 6.5a7.8 7.8 0 0 1 0 11",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  redo: "M19.5 12a7.5 7.5 0 1 1-2.2-5.3L20 9.4M20 4.5v5h-5",
  edit: "M4 20l1-4.5L16.5 4 20 7.5 8.5 19zM14 6.5 17.5 10",
  remove: "M5 7h14M10 7V4.5h4V7M7 7l.8 12.5h8.4L17 7M10.5 11v5M13.5 11v5",
  left: "M14.5 6 8.5 12l6 6",
  right: "M9.5 6l6 6-6 6",
  down: "M12 5v13M6 12.5l6 6 6-6",
  save: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  load: "M12 16V5M7 9.5l5-5 5 5M5 20h14",
  close: "M6 6l12 12M18 6 6 18",
  file: "M7 3.5h7l4 4V20.5H7zM14 3.5V8h4",
  machine: "M5 4.5h14v6H5zM5 13.5h14v6H5zM8 7.5h.01M8 16.5h.01M11.5 7.5h4M11.5 16.5h4",
  tree: "M4 12h5M9 12c3 0 3-6 6-6h5M9 12h11M9 12c3 0 3 6 6 6h5",
  proof: "M4 8h16M4 16h16M15 4 9 20",
  theme: "M12 3.5a8.5 8.5 0 1 0 0 17zM12 3.5a8.5 8.5 0 0 1 0 17",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

interface ButtonProps {
  icon: IconName;
  label: string;
  type?: "button" | "submit";
  onClick?: () => void;
  disabled?: boolean;
  class?: string;
}

/** A button that shows an icon and has its name as a label. */
export function IconButton({ icon, label, ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} class={`icon-button ${rest.class ?? ""}`} aria-label={label} title={label}>
      <Icon name={icon} />
    </button>
  );
}
